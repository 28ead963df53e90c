// What learners read: communication graphs of users, and differences of other learners.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/hostile/format.h"
#include "trireme/parallel/learner/base_graph.h"
#include "trireme/parallel/learner/graph_drawing.h"
#include "trireme/parallel/learner/graph_file.h"
#include "trireme/parallel/learner/wire_form.h"

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

class WireBytes : public Format {
 public:
  std::string name() const override { return "learner-wire"; }

  void write(Random& random) override {
    using enum parallel::WireCode;
    std::vector<parallel::WireForm> forms;
    for (const auto code : {kFloat32, kInt8, kInt4, kInt2, kTwoBits, kSign}) {
      forms.push_back({.code = code});
      forms.push_back({.code = code, .kept = 0.1});
    }
    form_ = random.pick(forms);
    const at::Tensor x = at::arange(kCount, at::kFloat).mul_(0.7).sin_();
    const at::Tensor bytes = encode(form_, x);
    bytes_.assign(static_cast<const char*>(bytes.const_data_ptr()),
                  static_cast<size_t>(bytes.numel()));
    damage_bytes(bytes_, random);
    if (random.one_in(2)) bytes_.resize(static_cast<size_t>(bytes.numel()));
    // Where fp32 numbers of a message may lie.
    offset_ = static_cast<int64_t>(random.below(8));
  }

  void read() override {
    const auto size = static_cast<int64_t>(bytes_.size());
    const at::Tensor message = at::empty({offset_ + size}, at::kByte).narrow(0, offset_, size);
    std::copy(bytes_.begin(), bytes_.end(), static_cast<char*>(message.mutable_data_ptr()));
    at::Tensor x;
    const auto read = [&] { x = decode(form_, message, kCount); };
    if (!expect_refusal_or_sense(read)) return;
    require(x.numel() == kCount, "a wrong number of elements");
    require(x.isfinite().all().item<bool>(), "a number that is not finite");
  }

 private:
  static constexpr int64_t kCount = 600;
  parallel::WireForm form_;
  std::string bytes_;
  int64_t offset_ = 0;
};

}  // namespace

void add_learner_formats(Formats& formats) {
  formats.push_back(std::make_unique<GraphText>());
  formats.push_back(std::make_unique<WireBytes>());
}

}  // namespace trireme::hostile
