#include "trireme/plan/shard/shard_problem.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/plan/shard/shard_seconds.h"

namespace trireme::plan {
namespace {

using spmd::Graph;
using spmd::GraphNode;
using spmd::GraphValue;
using spmd::WorkKind;

// What an update reads and writes of an element, in units of its state bytes.
constexpr double kUpdatePasses = 2;
// Seconds of what cannot be: more than any step takes.
constexpr double kImpossible = 1e6;

// Equal for nodes that have the same strategies and costs.
std::string key_of(const Graph& graph, const GraphNode& node, const std::vector<char>& is_kept) {
  std::string key = node.name;
  const auto add = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto add_dims = [&](const auto& all) {
    add(std::ssize(all));
    for (const auto& dims : all) {
      add(std::ssize(dims));
      for (const auto each : dims) add(each);
    }
  };
  add_dims(node.form.inputs);
  add_dims(node.form.outputs);
  add(node.form.contracted);
  add(node.form.added);
  for (const spmd::TensorSet set : node.form.linear) add(set);
  add(node.form.sums);
  add(node.form.granular);
  add(node.form.granule);
  add(node.form.exchanged);
  add(static_cast<int64_t>(node.form.exchanged_bytes));
  add(node.written);
  add(node.is_causal);
  const auto add_value = [&](int value) {
    add(value < 0);
    if (value < 0) return;
    const GraphValue& each = graph.values[value];
    add(static_cast<int64_t>(each.kind == GraphValue::Kind::kResult));
    add(each.itemsize);
    add(each.is_floating);
    add(is_kept[value]);
    for (const int64_t length : each.sizes) add(length);
    add(-1);
  };
  for (const int value : node.inputs) add_value(value);
  for (const int value : node.outputs) add_value(value);
  for (const int form : node.output_forms) add(form);
  return key;
}

}  // namespace

ShardProblem::ShardProblem(const Graph& graph, const ShardOptions& options)
    : graph_(graph),
      options_(options),
      variable_of_(graph.values.size(), -1),
      output_of_(graph.values.size(), 0) {
  TRIREME_CHECK(!options.axes.empty() && std::ssize(options.axes) <= kMostShardAxes, "a plan over ",
                options.axes.size(), " axes; expected 1 or 2");
  mark_kept();
  add_parameters();
  add_nodes();
  add_gradients();
  make_tables();
}

// What backward reads of forward lies in memory in between; of a view, what it is a view of.
void ShardProblem::mark_kept() {
  is_kept_.assign(graph_.values.size(), 0);
  std::vector<int> whole(graph_.values.size());
  for (size_t value = 0; value < whole.size(); ++value) whole[value] = static_cast<int>(value);
  for (const GraphNode& node : graph_.nodes) {
    if (node.work != WorkKind::kView || node.inputs.empty() || node.inputs[0] < 0) continue;
    for (const int output : node.outputs) whole[output] = whole[node.inputs[0]];
  }
  for (const GraphNode& node : graph_.nodes) {
    if (!node.is_backward) continue;
    for (const int input : node.inputs) {
      if (input < 0) continue;
      const GraphValue& value = graph_.values[whole[input]];
      if (value.kind != GraphValue::Kind::kResult) continue;
      is_kept_[whole[input]] = !graph_.nodes[value.producer].is_backward;
    }
  }
}

void ShardProblem::add_parameters() {
  std::map<std::tuple<std::vector<int64_t>, int64_t, std::optional<Split>>, int> known;
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const GraphValue& value = graph_.values[v];
    if (value.kind != GraphValue::Kind::kParameter) continue;
    const auto given = options_.fixed.find(static_cast<int>(v));
    const std::optional<Split> fixed =
        given == options_.fixed.end() ? std::nullopt : std::optional(given->second);
    const auto [found, is_new] =
        known.try_emplace({value.sizes, value.itemsize, fixed}, static_cast<int>(kinds_.size()));
    if (is_new) {
      Kind kind{.value = static_cast<int>(v)};
      for (const Split& split :
           fixed ? std::vector<Split>{*fixed} : parameter_splits(value.sizes, options_.axes)) {
        const double bytes =
            options_.state_bytes * value.numel() / num_blocks(options_.axes, split);
        kind.strategies.push_back({.inputs = {split}, .outputs = {split}});
        kind.seconds.push_back(kUpdatePasses * bytes / options_.cluster.device.elementwise_rate(4));
        kind.kept_bytes.push_back(bytes);
      }
      kinds_.push_back(std::move(kind));
    }
    variable_of_[v] = static_cast<int>(kinds_of_.size());
    kinds_of_.push_back(found->second);
    parameters_.push_back(static_cast<int>(v));
  }
}

void ShardProblem::add_nodes() {
  std::map<std::string, int> known;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    const auto [found, is_new] =
        known.try_emplace(key_of(graph_, node, is_kept_), static_cast<int>(kinds_.size()));
    if (is_new) found->second = kind_of_node(static_cast<int>(n));
    const int variable = static_cast<int>(kinds_of_.size());
    kinds_of_.push_back(found->second);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] >= 0) add_use(node.inputs[i], variable, static_cast<int>(i));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      variable_of_[node.outputs[i]] = variable;
      output_of_[node.outputs[i]] = static_cast<int>(i);
    }
  }
}

int ShardProblem::kind_of_node(int n) {
  const GraphNode& node = graph_.nodes[n];
  Kind kind{.node = n, .strategies = strategies_of(graph_, node, options_.axes)};
  for (const NodeStrategy& strategy : kind.strategies) {
    kind.seconds.push_back(node_seconds(options_.cluster, graph_, node, options_.axes, strategy));
    double bytes = 0;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!is_kept_[node.outputs[i]]) continue;
      bytes +=
          graph_.values[node.outputs[i]].bytes() / num_blocks(options_.axes, strategy.outputs[i]);
    }
    kind.kept_bytes.push_back(bytes);
  }
  kinds_.push_back(std::move(kind));
  return static_cast<int>(kinds_.size()) - 1;
}

// The optimizer works on a parameter's blocks, so its gradient has to come in them.
void ShardProblem::add_gradients() {
  for (const Graph::Gradient& each : graph_.gradients)
    add_use(each.gradient, variable_of_[each.parameter], 0);
}

// What is given is on every rank, which may take any part of it.
void ShardProblem::add_use(int value, int user, int input) {
  const int maker = variable_of_[value];
  if (maker < 0 || maker == user) return;
  uses_.push_back({maker, output_of_[value], user, input, value});
}

const Split& ShardProblem::needed(const Use& use, int choice) const {
  return kind(use.user).strategies[choice].inputs[use.input];
}

void ShardProblem::make_tables() {
  for (const Kind& kind : kinds_) {
    at_no_price_.tables.push_back(
        {.rows = static_cast<int>(kind.strategies.size()), .columns = 1, .costs = kind.seconds});
  }
  at_no_price_.variables = kinds_of_;
  std::map<std::tuple<int, int, int, int>, int> known;
  for (const Use& use : uses_) {
    const auto [found, is_new] =
        known.try_emplace({kinds_of_[use.maker], use.output, kinds_of_[use.user], use.input},
                          static_cast<int>(at_no_price_.tables.size()));
    if (is_new) {
      const Kind &maker = kind(use.maker), &user = kind(use.user);
      MinSum::Table table{.rows = static_cast<int>(maker.strategies.size()),
                          .columns = static_cast<int>(user.strategies.size())};
      std::map<std::pair<Split, Split>, double> moves;
      const bool is_written = user.node >= 0 && graph_.nodes[user.node].written == use.input;
      for (const NodeStrategy& from : maker.strategies) {
        for (const NodeStrategy& to : user.strategies) {
          const auto ends = std::make_pair(from.outputs[use.output], to.inputs[use.input]);
          const auto [move, is_first] = moves.try_emplace(ends, 0);
          if (is_first && is_written && ends.first != ends.second) {
            move->second = kImpossible;
          } else if (is_first) {
            move->second = move_cost(options_.cluster, options_.axes, graph_.values[use.value],
                                     ends.first, ends.second)
                               .seconds;
          }
          table.costs.push_back(move->second);
        }
      }
      at_no_price_.tables.push_back(std::move(table));
    }
    at_no_price_.edges.push_back({use.maker, use.user, found->second});
  }
}

MinSum ShardProblem::min_sum(double second_per_byte) const {
  MinSum problem = at_no_price_;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    for (size_t i = 0; i < kinds_[k].seconds.size(); ++i)
      problem.tables[k].costs[i] += second_per_byte * kinds_[k].kept_bytes[i];
  }
  return problem;
}

double ShardProblem::least_bytes() const {
  double bytes = 0;
  for (const int kind : kinds_of_) bytes += std::ranges::min(kinds_[kind].kept_bytes);
  return bytes;
}

double ShardProblem::kept_bytes(const std::vector<int>& choices) const {
  double bytes = 0;
  for (size_t v = 0; v < choices.size(); ++v)
    bytes += kinds_[kinds_of_[v]].kept_bytes[static_cast<size_t>(choices[v])];
  return bytes;
}

}  // namespace trireme::plan
