// The ways in which one or two axes of ranks can split an operator, from its form.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/cost/device_seconds.h"
#include "trireme/spmd/graph/graph.h"

namespace trireme::plan {

inline constexpr int kMostShardAxes = 2;

// How axes split a tensor: a dimension, or one of these.
using AxisSplit = int8_t;
inline constexpr AxisSplit kReplicated = -1;
inline constexpr AxisSplit kPartial = -2;  // a sum over the ranks is missing
using Split = std::array<AxisSplit, kMostShardAxes>;
inline constexpr Split kWhole = {kReplicated, kReplicated};

struct ShardAxis {
  std::string name{};
  Group group{};
};
// Outer ones first.
using ShardAxes = std::vector<ShardAxis>;

// "[data: sharded(0), tensor: partial]"
std::string to_string(const ShardAxes& axes, const Split& split);
// Whether all blocks are equal.
bool divides(const ShardAxes& axes, const Split& split, const std::vector<int64_t>& sizes);
// The sizes of a block.
std::vector<int64_t> block_sizes(const ShardAxes& axes, const Split& split,
                                 const std::vector<int64_t>& sizes);
// The ranks of the axes that split it into blocks.
double num_blocks(const ShardAxes& axes, const Split& split);

struct NodeStrategy {
  std::vector<Split> inputs{};
  std::vector<Split> outputs{};  // by output of the node
  bool operator==(const NodeStrategy&) const = default;
};
// Those with equal blocks. The first one has every tensor whole on each rank.
std::vector<NodeStrategy> strategies_of(const spmd::Graph& graph, const spmd::GraphNode& node,
                                        const ShardAxes& axes);
// Of a parameter: whole, or with its dimensions split.
std::vector<Split> parameter_splits(const std::vector<int64_t>& sizes, const ShardAxes& axes);

}  // namespace trireme::plan
