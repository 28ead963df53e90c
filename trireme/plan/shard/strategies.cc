#include "trireme/plan/shard/strategies.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using spmd::Factor;
using spmd::Factors;
using spmd::Form;
using spmd::Graph;
using spmd::GraphNode;

// What one axis does.
struct AxisStrategy {
  std::vector<AxisSplit> inputs{};
  std::vector<AxisSplit> results{};  // by output of the form
  bool operator==(const AxisStrategy&) const = default;
};

AxisStrategy without_split(const Form& form) {
  return {std::vector<AxisSplit>(form.inputs.size(), kReplicated),
          std::vector<AxisSplit>(form.outputs.size(), kReplicated)};
}

AxisSplit dim_of(const Factors& dims, Factor factor) {
  const auto found = std::ranges::find(dims, factor);
  return found == dims.end() ? kReplicated : static_cast<AxisSplit>(found - dims.begin());
}

AxisStrategy with_factor(const Form& form, Factor factor) {
  AxisStrategy strategy = without_split(form);
  const bool is_sum = (form.contracted >> factor & 1U) != 0;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    strategy.inputs[i] = dim_of(form.inputs[i], factor);
    const bool is_added = is_sum && (form.added >> i & 1U) != 0;
    if (is_added && strategy.inputs[i] == kReplicated) strategy.inputs[i] = kPartial;
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    strategy.results[i] = dim_of(form.outputs[i], factor);
    const bool is_partial = is_sum && (form.sums >> i & 1U) != 0;
    if (is_partial && strategy.results[i] == kReplicated) strategy.results[i] = kPartial;
  }
  return strategy;
}

// The same for every axis, before lengths are looked at.
std::vector<AxisStrategy> axis_strategies(const Graph& graph, const GraphNode& node) {
  const Form& form = node.form;
  std::vector<AxisStrategy> all = {without_split(form)};
  const auto add = [&](AxisStrategy strategy) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0) strategy.inputs[i] = kReplicated;
    }
    if (std::ranges::find(all, strategy) == all.end()) all.push_back(std::move(strategy));
  };
  uint32_t tried = 0;
  // A split of a dimension that is joined behind another's is periodic, which a plan does not say.
  for (const spmd::JoinedFactor& joined : form.joined) tried |= 1U << joined.factor;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    for (const Factor factor : form.inputs[i]) {
      if (factor == spmd::kWholeDim || (tried >> factor & 1U) != 0) continue;
      tried |= 1U << factor;
      add(with_factor(form, factor));
    }
  }
  for (const spmd::TensorSet set : form.linear) {
    AxisStrategy strategy = without_split(form);
    bool has_sum = false, is_floating = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if ((set >> i & 1U) == 0 || node.inputs[i] < 0) continue;
      strategy.inputs[i] = kPartial;
      // What is given has no sum missing.
      has_sum |= graph.values[node.inputs[i]].kind == spmd::GraphValue::Kind::kResult;
      is_floating &= graph.values[node.inputs[i]].is_floating;
    }
    if (!has_sum || !is_floating) continue;
    for (size_t i = 0; i < strategy.results.size(); ++i)
      strategy.results[i] = (form.sums >> i & 1U) != 0 ? kPartial : kReplicated;
    add(std::move(strategy));
  }
  return all;
}

// Whether blocks of a factor are multiples of its granule.
bool keeps_granules(const Graph& graph, const GraphNode& node, const ShardAxes& axes,
                    const NodeStrategy& strategy) {
  const Form& form = node.form;
  for (size_t i = 0; i < node.inputs.size() && form.granule > 1; ++i) {
    const AxisSplit dim = dim_of(form.inputs[i], form.granular);
    if (node.inputs[i] < 0 || dim < 0) continue;
    const Split& split = strategy.inputs[i];
    const auto at = static_cast<size_t>(dim);
    const int64_t block = block_sizes(axes, split, graph.values[node.inputs[i]].sizes)[at];
    if (block * form.input_scale(i, at) % form.granule != 0) return false;
  }
  return true;
}

// Both axes' choices in one, or nothing where a length does not divide.
bool join(const Graph& graph, const GraphNode& node, const ShardAxes& axes,
          const std::array<const AxisStrategy*, kMostShardAxes>& each, NodeStrategy& joined) {
  joined.inputs.assign(node.inputs.size(), kWhole);
  joined.outputs.assign(node.outputs.size(), kWhole);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      joined.inputs[i][axis] = each[axis]->inputs[i];
    if (!divides(axes, joined.inputs[i], graph.values[node.inputs[i]].sizes)) return false;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    for (size_t axis = 0; axis < axes.size(); ++axis)
      joined.outputs[i][axis] = each[axis]->results[static_cast<size_t>(node.output_forms[i])];
    if (!divides(axes, joined.outputs[i], graph.values[node.outputs[i]].sizes)) return false;
  }
  const bool writes = node.written >= 0 && !node.outputs.empty();
  if (writes && joined.inputs[static_cast<size_t>(node.written)] != joined.outputs[0]) return false;
  return keeps_granules(graph, node, axes, joined);
}

}  // namespace

std::string to_string(const ShardAxes& axes, const Split& split) {
  std::string text = "[";
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    text += concat(axis > 0 ? ", " : "", axes[axis].name, ": ");
    if (split[axis] == kReplicated) text += "replicated";
    if (split[axis] == kPartial) text += "partial";
    if (split[axis] >= 0) text += concat("sharded(", static_cast<int>(split[axis]), ")");
  }
  return text + "]";
}

bool divides(const ShardAxes& axes, const Split& split, const std::vector<int64_t>& sizes) {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (split[axis] < 0) continue;
    int64_t parts = axes[axis].group.ranks;
    for (size_t outer = 0; outer < axis; ++outer) {
      if (split[outer] == split[axis]) parts *= axes[outer].group.ranks;
    }
    const int64_t length = sizes[static_cast<size_t>(split[axis])];
    if (length == 0 || length % parts != 0) return false;
  }
  return true;
}

std::vector<int64_t> block_sizes(const ShardAxes& axes, const Split& split,
                                 const std::vector<int64_t>& sizes) {
  std::vector<int64_t> block = sizes;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (split[axis] >= 0) block[static_cast<size_t>(split[axis])] /= axes[axis].group.ranks;
  }
  return block;
}

double num_blocks(const ShardAxes& axes, const Split& split) {
  double blocks = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (split[axis] >= 0) blocks *= static_cast<double>(axes[axis].group.ranks);
  }
  return blocks;
}

std::vector<NodeStrategy> strategies_of(const Graph& graph, const GraphNode& node,
                                        const ShardAxes& axes) {
  const std::vector<AxisStrategy> one = axis_strategies(graph, node);
  std::vector<NodeStrategy> all;
  NodeStrategy joined;
  const auto add = [&](const AxisStrategy& outer, const AxisStrategy& inner) {
    if (join(graph, node, axes, {&outer, &inner}, joined)) all.push_back(joined);
  };
  for (const AxisStrategy& outer : one) {
    if (axes.size() == 1) add(outer, outer);
    if (axes.size() == 1) continue;
    for (const AxisStrategy& inner : one) add(outer, inner);
  }
  return all;
}

std::vector<Split> parameter_splits(const std::vector<int64_t>& sizes, const ShardAxes& axes) {
  std::vector<Split> all;
  const int dims = static_cast<int>(sizes.size());
  const int inner_last = axes.size() > 1 ? dims : 0;
  for (int outer = -1; outer < dims; ++outer) {
    for (int inner = -1; inner < inner_last; ++inner) {
      const Split split = {static_cast<AxisSplit>(outer), static_cast<AxisSplit>(inner)};
      if (divides(axes, split, sizes)) all.push_back(split);
    }
  }
  return all;
}

}  // namespace trireme::plan
