#include "trireme/plan/shard/shard_notes.h"

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"

namespace trireme::plan {
namespace {

using spmd::Annotation;
using spmd::Graph;
using spmd::GraphNode;
using spmd::GraphValue;

spmd::Splits splits_of(const Split& split, const ShardAxes& axes) {
  spmd::Splits splits;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (split[axis] == kPartial) splits = splits.partial(axes[axis].name);
    if (split[axis] >= 0) splits = splits.split(split[axis], axes[axis].name);
  }
  return splits;
}

Split split_of(const spmd::Splits& splits, const ShardAxes& axes, size_t dims,
               const std::string& name) {
  Split split = kWhole;
  for (const spmd::Splits::Axis& each : splits.axes()) {
    const auto axis = std::ranges::find(axes, each.name, &ShardAxis::name);
    if (axis == axes.end()) continue;
    TRIREME_CHECK(!each.is_partial && each.cuts.empty(), "the annotation of \"", name, "\" is ",
                  each.is_partial ? "a partial sum" : "a split with cuts",
                  ", which a plan cannot keep; annotate an even split, or nothing");
    const int dim = each.dim < 0 ? each.dim + static_cast<int>(dims) : each.dim;
    TRIREME_CHECK(dim >= 0 && dim < static_cast<int>(dims), "the annotation of \"", name,
                  "\" splits dimension ", each.dim, ", and it has ", dims);
    split[static_cast<size_t>(axis - axes.begin())] = static_cast<AxisSplit>(dim);
  }
  return split;
}

const Annotation* note_of(const std::vector<Annotation>& notes, const GraphValue& value) {
  const auto found = std::ranges::find_if(notes, [&](const Annotation& note) {
    return matches(note.name, value.name) ||
           std::ranges::any_of(value.more_names,
                               [&](const std::string& name) { return matches(note.name, name); });
  });
  return found == notes.end() ? nullptr : &*found;
}

Split without_sums(Split split) {
  std::ranges::replace(split, kPartial, kReplicated);
  return split;
}

// Where the step's values lie when it runs with the notes that are found so far.
class Writer {
 public:
  Writer(const Graph& graph, const ShardPlan& plan, const ShardAxes& axes,
         const spmd::Annotations& given)
      : graph_(graph), plan_(plan), axes_(axes), notes_(given), now_(graph.values.size(), kWhole) {}

  spmd::Annotations run() {
    add_parameters();
    add_inputs();
    notes_.step = {.num_forward = graph_.num_forward,
                   .num_backward = graph_.num_backward,
                   .forward_mark = graph_.forward_mark,
                   .backward_mark = graph_.backward_mark};
    for (size_t n = 0; n < graph_.nodes.size(); ++n) add_node(n);
    return std::move(notes_);
  }

 private:
  void add_parameters() {
    const std::vector<Annotation> given = notes_.parameters;
    for (size_t i = 0; i < plan_.parameters.size(); ++i) {
      const GraphValue& value = graph_.values[plan_.parameters[i]];
      now_[plan_.parameters[i]] = plan_.splits[i];
      if (plan_.splits[i] == kWhole || note_of(given, value)) continue;
      notes_.parameters.push_back({value.name, splits_of(plan_.splits[i], axes_)});
      for (const std::string& name : value.more_names)
        notes_.parameters.push_back({name, splits_of(plan_.splits[i], axes_)});
    }
  }

  // An input that all operators want alike comes so; whatever it is.
  void add_inputs() {
    std::vector<std::optional<Split>> wanted(graph_.values.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const GraphNode& node = graph_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] < 0 || node.number < 0) continue;
        const Split& split = plan_.strategies[n].inputs[i];
        std::optional<Split>& all = wanted[node.inputs[i]];
        all = !all || *all == split ? split : kWhole;
      }
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const GraphValue& value = graph_.values[v];
      if (value.kind != GraphValue::Kind::kGiven || value.name.empty()) continue;
      const auto note = std::ranges::find(notes_.inputs, value.name, &Annotation::name);
      if (note == notes_.inputs.end()) continue;
      const Split given = split_of(note->splits, axes_, value.sizes.size(), value.name);
      const bool is_free = given == kWhole && wanted[v] && without_sums(*wanted[v]) == *wanted[v];
      now_[v] = is_free ? *wanted[v] : given;
      if (!is_free) continue;
      const spmd::Splits found = splits_of(now_[v], axes_);
      for (const spmd::Splits::Axis& each : found.axes())
        note->splits = note->splits.split(each.dim, each.name);
    }
  }

  void add_node(size_t n) {
    const GraphNode& node = graph_.nodes[n];
    const NodeStrategy& strategy = plan_.strategies[n];
    const Split first = node.inputs.empty() || node.inputs[0] < 0 ? kWhole : now_[node.inputs[0]];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0 || node.is_like_first || static_cast<int>(i) == node.written) continue;
      if (now_[node.inputs[i]] == strategy.inputs[i]) continue;
      notes_.step.arguments.push_back({.number = node.number,
                                       .operation = node.name,
                                       .argument = static_cast<int>(i),
                                       .splits = splits_of(strategy.inputs[i], axes_)});
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Split& now = now_[node.outputs[i]];
      now = strategy.outputs[i];
      if (node.is_like_first) now = result_like(node, first, node.outputs[i]);
      if (node.written >= 0 && i == 0) now = now_[node.inputs[static_cast<size_t>(node.written)]];
    }
  }

  Split result_like(const GraphNode& node, const Split& first, int output) const {
    const GraphValue& value = graph_.values[output];
    const bool is_alike = node.inputs[0] >= 0 && graph_.values[node.inputs[0]].sizes == value.sizes;
    if (!is_alike) return kWhole;
    return node.number < 0 && node.name != "aten::ones_like" && node.name != spmd::kSummed
               ? first
               : without_sums(first);
  }

  const Graph& graph_;
  const ShardPlan& plan_;
  const ShardAxes& axes_;
  spmd::Annotations notes_;
  std::vector<Split> now_;
};

}  // namespace

std::map<int, Split> fixed_splits(const Graph& graph, const ShardAxes& axes,
                                  const spmd::Annotations& given) {
  std::map<int, Split> fixed;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.kind != GraphValue::Kind::kParameter) continue;
    const Annotation* note = note_of(given.parameters, value);
    if (!note) continue;
    const Split split = split_of(note->splits, axes, value.sizes.size(), value.name);
    TRIREME_CHECK(divides(axes, split, value.sizes), "the annotation of \"", value.name,
                  "\" does not split it evenly, which a plan needs; annotate another dimension, or "
                  "nothing");
    fixed.emplace(static_cast<int>(v), split);
  }
  return fixed;
}

spmd::Annotations notes_of(const Graph& graph, const ShardPlan& plan, const ShardAxes& axes,
                           const spmd::Annotations& given) {
  const std::vector<std::string> missing = spmd::without_rule(graph);
  TRIREME_CHECK(missing.empty(), "no rule says how to split ", joined(missing),
                ", so a plan with them cannot run; call them within local_map()");
  return Writer(graph, plan, axes, given).run();
}

}  // namespace trireme::plan
