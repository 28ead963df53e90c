// Learners, what they exchange, and the layout of each, drawn from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "tests/parity/random_layout.h"
#include "trireme/base/error.h"

namespace trireme::train {

// A problem, and two layouts of a learner for it.
struct DrawnLearners {
  int64_t learners = 2;
  Overrides problem{};  // its model, batch and [outer]
  DrawnLayout first{};
  DrawnLayout second{};

  Overrides at(const DrawnLayout& layout) const {
    // An exchange changes weights in memory.
    return joined(joined(problem, layout.all()), {{"parallel.learners", std::to_string(learners)},
                                                  {"offload.optimizer", "none"},
                                                  {"offload.parameters", "none"}});
  }
  int ranks(const DrawnLayout& layout) const { return static_cast<int>(learners) * layout.ranks; }
};

// Numbers of which a rounding cannot make others.
inline Overrides draw_outer(Draw& draw) {
  Overrides outer;
  const auto set = [&](const std::string& key, const std::string& value) {
    outer.emplace_back("outer." + key, value);
  };
  const int64_t fragments = draw.number(1, 2), stride = draw.number(1, 3);
  set("every", std::to_string(fragments * stride));
  set("fragments", std::to_string(fragments));
  const std::string method = draw.one_of({"average", "diloco", "diloco", "gossip"});
  set("method", method);
  if (method == "gossip") {
    set("graph", draw.one_of({"ring", "complete", "base-2", "exponential"}));
    return outer;
  }
  if (method == "diloco") {
    set("optimizer", draw.one_of({"sgd", "nesterov"}));
    set("learning_rate", draw.one_of({"0.7", "1", "0.3"}));
    set("momentum", draw.one_of({"0", "0.9", "0.5"}));
  }
  const int64_t delay = draw.number(0, stride);
  set("delay", std::to_string(delay));
  if (delay > 0) set("mix", draw.one_of({"1", "0.5", "0.25"}));
  return outer;
}

// equal: both layouts give the same bits
inline DrawnLearners draw_learners(Draw& draw, bool equal) {
  DrawnLearners drawn{.learners = draw.number(2, 3), .problem = draw_problem(draw)};
  const int64_t most = 8 / drawn.learners;
  drawn.first = draw_layout(draw, drawn.problem, most);
  drawn.second =
      equal ? with_other_stages(draw, drawn.first, most) : draw_layout(draw, drawn.problem, most);
  int64_t data = 1;
  for (const DrawnLayout* const layout : {&drawn.first, &drawn.second}) {
    data = std::lcm(data, config_of(layout->all()).parallel.data);
  }
  const int64_t micro_batch = config_of(drawn.problem).train.micro_batch;
  const int64_t batch = drawn.learners * data * micro_batch * draw.number(1, 2);
  drawn.problem = joined(drawn.problem, {{"train.uneven_batches", "false"},
                                         {"train.global_batch", std::to_string(batch)}});
  return drawn;
}

}  // namespace trireme::train
