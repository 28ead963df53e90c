// Plans how one or two axes of ranks split a traced step: the strategies of operators and the
// splits of parameters with which a step takes the fewest seconds, within a bound of memory.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/shard/shard_problem.h"

namespace trireme::plan {

// A tensor that goes from one split to another.
struct ShardMove {
  int value = 0;
  int node = -1;       // that needs it; -1: it is the gradient of a parameter
  int parameter = -1;  // then: its value
  Split from = kWhole, to = kWhole;
  double bytes = 0;  // that a rank sends
  double seconds = 0;
  std::string why{};
};

struct ShardPlan {
  std::vector<int> parameters{};  // values
  std::vector<Split> splits{};    // of each
  // What the step gains by each one's split: the seconds that it would take longer if only this
  // parameter were whole on every rank. Below 0 where memory asks for the split.
  std::vector<double> gains{};
  std::vector<NodeStrategy> strategies{};  // of each node
  std::vector<ShardMove> moves{};
  double seconds = 0;         // of a step: operators, updates and moves
  double move_seconds = 0;    // of these
  double update_seconds = 0;  // of these: once a step, however many microbatches it has
  double bound_seconds = 0;   // no plan takes fewer
  double kept_bytes = 0;      // of a rank: states, and activations for backward
  double whole_seconds = 0;   // when every rank does everything
  int num_variables = 0, num_kinds = 0;

  // By how much of its seconds a better plan might be faster.
  double gap() const { return seconds > 0 ? (seconds - bound_seconds) / seconds : 0; }
};

// Throws: ConfigError when the memory does not suffice at any split
ShardPlan plan_shards(const spmd::Graph& graph, const ShardOptions& options);

}  // namespace trireme::plan
