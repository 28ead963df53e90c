// Seconds of an operator on blocks, and of moving a tensor from one split to another.
#pragma once

#include <vector>

#include "trireme/plan/device/cluster.h"
#include "trireme/plan/shard/strategies.h"

namespace trireme::plan {

// With the sums over ranks that a rule takes by itself, and without the host's time to launch it,
// which no split changes.
double node_seconds(const Cluster& cluster, const spmd::Graph& graph, const spmd::GraphNode& node,
                    const ShardAxes& axes, const NodeStrategy& strategy);

struct MoveCost {
  double seconds = 0;
  double bytes = 0;  // that a rank sends
};
// The steps that spmd's redistribute() takes: the inner axis first, and through whole blocks where
// another axis splits the same dimension.
MoveCost move_cost(const Cluster& cluster, const ShardAxes& axes, const spmd::GraphValue& value,
                   const Split& from, const Split& to);

}  // namespace trireme::plan
