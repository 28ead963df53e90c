#include "trireme/plan/shard/shard_seconds.h"

#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

using spmd::Graph;
using spmd::GraphNode;
using spmd::GraphValue;
using spmd::WorkKind;
using Sizes = std::vector<int64_t>;

double count(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0, [](double all, int64_t length) {
    return all * static_cast<double>(length);
  });
}

double length(const Sizes& sizes, size_t from_last) {
  return sizes.size() > from_last ? static_cast<double>(sizes[sizes.size() - 1 - from_last]) : 1;
}

// The blocks of one operator on one rank.
class Blocks {
 public:
  Blocks(const Cluster& cluster, const Graph& graph, const GraphNode& node, const ShardAxes& axes,
         const NodeStrategy& strategy)
      : cluster_(cluster), graph_(graph), node_(node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0) continue;
      values_.push_back(node.inputs[i]);
      inputs_.push_back(block_sizes(axes, strategy.inputs[i], graph.values[node.inputs[i]].sizes));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      outputs_.push_back(
          block_sizes(axes, strategy.outputs[i], graph.values[node.outputs[i]].sizes));
    }
  }

  double seconds() const {
    if (node_.work == WorkKind::kView || outputs_.empty()) return 0;
    switch (node_.work) {
      case WorkKind::kView: return 0;
      case WorkKind::kElements:
      case WorkKind::kLookUp: return elements();
      case WorkKind::kProduct: return product();
      case WorkKind::kConvolution: return convolution(0, 1, outputs_[0]);
      case WorkKind::kConvolutionBackward:
        return static_cast<double>(outputs_.size() > 1 ? 2 : 1) * convolution(1, 2, inputs_[0]);
      case WorkKind::kAttention: return attention(0);
      case WorkKind::kAttentionBackward: return attention_backward_factor(true) * attention(1);
    }
    return 0;
  }

 private:
  double itemsize() const { return static_cast<double>(graph_.values[node_.outputs[0]].itemsize); }

  double elements() const {
    double bytes = 0;
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      bytes += count(outputs_[i]) * static_cast<double>(graph_.values[node_.outputs[i]].itemsize);
    }
    const double written = bytes;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const double read =
          count(inputs_[i]) * static_cast<double>(graph_.values[values_[i]].itemsize);
      bytes += node_.work == WorkKind::kLookUp && i == 0 ? std::min(written, read) : read;
    }
    return bytes / cluster_.device.elementwise_rate(itemsize());
  }

  // Of the two last arguments, [.., rows, inner] and [.., inner, columns].
  double product() const {
    if (inputs_.size() < 2) return 0;
    const Sizes &a = inputs_[inputs_.size() - 2], &b = inputs_.back();
    const bool is_vector = b.size() == 1;
    const Product shape{.rows = length(a, 1),
                        .columns = is_vector ? 1 : length(b, 0),
                        .inner = length(a, 0),
                        .count = a.size() > 2 ? static_cast<double>(a[0]) : 1};
    return product_seconds(cluster_.device, shape, itemsize());
  }

  // x [n, c, ..] -> [n, o, ..] with weights [o, c / groups, ..], or transposed [c, o / groups, ..]:
  // there are as many products as the smaller of the two has places.
  double convolution(size_t x, size_t w, const Sizes& results) const {
    if (inputs_.size() <= w) return 0;
    const Sizes &from = inputs_[x], &weight = inputs_[w];
    const bool is_transposed = results[1] != weight[0];
    const auto in = static_cast<double>(from[1]), out = static_cast<double>(results[1]);
    const double groups =
        std::max(1.0, (is_transposed ? out : in) / static_cast<double>(weight[1]));
    const double taps = count(weight) / static_cast<double>(weight[0] * weight[1]);
    const Product shape{.rows = std::min(count(from) / in, count(results) / out),
                        .columns = out / groups,
                        .inner = in / groups * taps,
                        .count = groups};
    return product_seconds(cluster_.device, shape, itemsize());
  }

  // From q [B, N, T, H]; k follows it.
  double attention(size_t query) const {
    if (inputs_.size() < query + 2) return 0;
    const Sizes &q = inputs_[query], &k = inputs_[query + 1];
    const AttentionCore core{.queries = static_cast<double>(q[0] * q[2]),
                             .keys = static_cast<double>(k[2]),
                             .heads = static_cast<double>(q[1]),
                             .width = static_cast<double>(q[3]),
                             .is_causal = node_.is_causal};
    return attention_seconds(cluster_.device, core, itemsize(), /*is_fused=*/true);
  }

  const Cluster& cluster_;
  const Graph& graph_;
  const GraphNode& node_;
  std::vector<int> values_{};  // of inputs_
  std::vector<Sizes> inputs_{}, outputs_{};
};

// The factor that an axis splits, or kWholeDim.
spmd::Factor factor_on(const GraphNode& node, const NodeStrategy& strategy, size_t axis) {
  for (size_t i = 0; i < strategy.inputs.size(); ++i) {
    const AxisSplit dim = strategy.inputs[i][axis];
    if (node.inputs[i] >= 0 && dim >= 0) return node.form.inputs[i][static_cast<size_t>(dim)];
  }
  return spmd::kWholeDim;
}

// Of the sums that the rule takes by itself, over the rows that the other axes leave to a rank.
double exchange_seconds(const Cluster& cluster, const GraphNode& node, const ShardAxes& axes,
                        const NodeStrategy& strategy) {
  if (node.form.exchanged == 0) return 0;
  const auto is_exchanged = [&](spmd::Factor factor) {
    return factor >= 0 && (node.form.exchanged >> factor & 1U) != 0;
  };
  double bytes = node.form.exchanged_bytes / std::max(node.form.num_exchanges, 1), seconds = 0;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const spmd::Factor factor = factor_on(node, strategy, axis);
    if (factor >= 0 && !is_exchanged(factor)) bytes /= static_cast<double>(axes[axis].group.ranks);
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!is_exchanged(factor_on(node, strategy, axis)) || axes[axis].group.ranks == 1) continue;
    seconds += node.form.num_exchanges * all_reduce_seconds(cluster, axes[axis].group, bytes);
  }
  return seconds;
}

// One axis, of a block that has these bytes when the axis does not split it.
MoveCost step_cost(const Cluster& cluster, const Group& group, double bytes, AxisSplit from,
                   AxisSplit to) {
  const double p = static_cast<double>(group.ranks), share = (p - 1) / p;
  if (from == to || from == kReplicated || group.ranks == 1) return {};
  if (from == kPartial) {
    if (to == kReplicated) return {all_reduce_seconds(cluster, group, bytes), 2 * share * bytes};
    return {reduce_scatter_seconds(cluster, group, bytes), share * bytes};
  }
  if (to == kPartial) return {};
  if (to == kReplicated) return {all_gather_seconds(cluster, group, bytes), share * bytes};
  return {all_to_all_seconds(cluster, group, bytes / p), share * bytes / p};
}

}  // namespace

double node_seconds(const Cluster& cluster, const Graph& graph, const GraphNode& node,
                    const ShardAxes& axes, const NodeStrategy& strategy) {
  return Blocks(cluster, graph, node, axes, strategy).seconds() +
         exchange_seconds(cluster, node, axes, strategy);
}

MoveCost move_cost(const Cluster& cluster, const ShardAxes& axes, const GraphValue& value,
                   const Split& from, const Split& to) {
  MoveCost cost;
  Split now = from;
  const auto move = [&](size_t axis, AxisSplit next) {
    Split others = now;
    others[axis] = kReplicated;
    const MoveCost step = step_cost(cluster, axes[axis].group,
                                    value.bytes() / num_blocks(axes, others), now[axis], next);
    cost.seconds += step.seconds;
    cost.bytes += step.bytes;
    now[axis] = next;
  };
  const auto is_shared = [&](size_t axis, AxisSplit dim) {
    if (dim < 0) return false;
    for (size_t other = 0; other < axes.size(); ++other) {
      if (other != axis && (now[other] == dim || to[other] == dim)) return true;
    }
    return false;
  };
  const auto is_under_change = [&](size_t axis) {
    for (size_t outer = 0; now[axis] >= 0 && outer < axis; ++outer) {
      if (now[outer] != to[outer] && (now[outer] == now[axis] || to[outer] == now[axis]))
        return true;
    }
    return false;
  };
  for (size_t axis = axes.size(); axis-- > 0;) {
    if (now[axis] != to[axis] && !is_shared(axis, now[axis]) && !is_shared(axis, to[axis])) {
      move(axis, to[axis]);
    } else if ((now[axis] != to[axis] || is_under_change(axis)) && now[axis] != kReplicated) {
      move(axis, kReplicated);
    }
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (now[axis] != to[axis]) move(axis, to[axis]);
  }
  return cost;
}

}  // namespace trireme::plan
