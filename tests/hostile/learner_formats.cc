// What learners read: communication graphs of users.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/hostile/format.h"
#include "trireme/parallel/learner/base_graph.h"
#include "trireme/parallel/learner/graph_drawing.h"
#include "trireme/parallel/learner/graph_file.h"

namespace trireme::hostile {
namespace {

class GraphText : public Format {
 public:
  std::string name() const override { return "learner-graph"; }

  void write(Random& random) override {
    const std::vector<std::string> valid = {
        to_text(parallel::make_base_graph(6, 1)),
        "learners 3 # ours\n\nround\n0 1 1/3\r\n1 2 0.25\n2 0\t5e-1\nround\n0 2 1/4\n"};
    text_ = valid[random.below(valid.size())];
    damage_text(text_, random);
  }

  void read() override {
    parallel::LearnerGraph graph;
    const auto parse = [&] { graph = parallel::parse_graph(text_, "graph"); };
    if (!expect_refusal_or_sense(parse)) return;
    require(graph.num_learners >= 1 && graph.num_learners <= parallel::kMostLearners,
            "a wrong number of learners");
    require(!graph.rounds.empty(), "no rounds");
    for (const parallel::GraphRound& round : graph.rounds) {
      for (const double kept : graph.kept(round)) {
        require(kept >= parallel::kLeastKept && kept <= 1, "a learner that keeps nothing");
      }
    }
    require(parallel::parse_graph(to_text(graph), "graph") == graph,
            "another graph when read again");
    expect_refusal_or_sense([&] { parallel::draw_svg(graph); });
  }

 private:
  std::string text_;
};

}  // namespace

void add_learner_formats(Formats& formats) { formats.push_back(std::make_unique<GraphText>()); }

}  // namespace trireme::hostile
