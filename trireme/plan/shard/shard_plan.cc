#include "trireme/plan/shard/shard_plan.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/plan/shard/memory_price.h"
#include "trireme/plan/shard/shard_seconds.h"

namespace trireme::plan {
namespace {

using spmd::Graph;
using spmd::GraphNode;

std::string path_of(const GraphNode& node) {
  return node.module.empty() ? node.name : concat(node.name, " of ", node.module);
}

// Why a tensor is not where it is needed, on the first axis on which it moves.
std::string why(const ShardProblem& problem, const ShardMove& move) {
  const Graph& graph = problem.graph();
  const ShardAxes& axes = problem.options().axes;
  const int producer = graph.values[move.value].producer;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const AxisSplit from = move.from[axis], to = move.to[axis];
    if (from == to || from == kReplicated) continue;
    const std::string& name = axes[axis].name;
    if (from == kPartial) {
      const std::string sum = concat("ranks of ", name, " have parts of a sum");
      if (move.node < 0) return concat(sum, ", over the samples or columns that each has seen");
      return concat(sum, producer >= 0 ? concat(", made by ", path_of(graph.nodes[producer])) : "");
    }
    if (producer < 0) return concat("the parameter is kept in blocks on ", name);
    if (move.node < 0) return concat("the parameter lies otherwise on ", name);
    if (to == kReplicated)
      return concat("dimension ", static_cast<int>(from), " must be whole on ", name);
    return concat("dimension ", static_cast<int>(to), " is split on ", name, ", and it was ",
                  static_cast<int>(from));
  }
  return "two axes split one dimension";
}

void add_moves(const ShardProblem& problem, const std::vector<int>& choices, ShardPlan& plan) {
  const Graph& graph = problem.graph();
  for (const ShardProblem::Use& use : problem.uses()) {
    const Split& from = problem.made(use, choices[use.maker]);
    const Split& to = problem.needed(use, choices[use.user]);
    const MoveCost cost = move_cost(problem.options().cluster, problem.options().axes,
                                    graph.values[use.value], from, to);
    if (cost.seconds <= 0) continue;
    const bool is_gradient = use.user < problem.num_parameters();
    plan.moves.push_back({.value = use.value,
                          .node = is_gradient ? -1 : problem.node(use.user),
                          .parameter = is_gradient ? problem.parameter(use.user) : -1,
                          .from = from,
                          .to = to,
                          .bytes = cost.bytes,
                          .seconds = cost.seconds});
    plan.moves.back().why = why(problem, plan.moves.back());
    plan.move_seconds += cost.seconds;
  }
}

// What each parameter's split is worth, all else as it is.
void add_gains(const ShardProblem& problem, const std::vector<int>& choices, ShardPlan& plan) {
  const MinSum all = problem.min_sum(0);
  std::vector<double> more(static_cast<size_t>(problem.num_parameters()), 0);
  for (size_t p = 0; p < more.size(); ++p) {
    const MinSum::Table& own = all.tables[all.variables[p]];
    more[p] = own.at(0, 0) - own.at(choices[p], 0);  // the first choice is whole
  }
  for (const MinSum::Edge& edge : all.edges) {
    const MinSum::Table& table = all.tables[edge.table];
    const double now = table.at(choices[edge.a], choices[edge.b]);
    if (edge.a < problem.num_parameters()) more[edge.a] += table.at(0, choices[edge.b]) - now;
    if (edge.b < problem.num_parameters()) more[edge.b] += table.at(choices[edge.a], 0) - now;
  }
  plan.gains = std::move(more);
}

}  // namespace

ShardPlan plan_shards(const Graph& graph, const ShardOptions& options) {
  const ShardProblem problem(graph, options);
  const PricedChoices found = choose_within(problem, options.memory_bytes);
  ShardPlan plan{.seconds = found.seconds,
                 .bound_seconds = found.bound_seconds,
                 .kept_bytes = found.kept_bytes,
                 .num_variables = problem.num_variables(),
                 .num_kinds = problem.num_kinds()};
  for (int v = 0; v < problem.num_variables(); ++v) {
    const NodeStrategy& strategy = problem.kind(v).strategies[found.choices[v]];
    plan.whole_seconds += problem.kind(v).seconds.front();
    if (v < problem.num_parameters()) {
      plan.parameters.push_back(problem.parameter(v));
      plan.splits.push_back(strategy.outputs.front());
      plan.update_seconds += problem.kind(v).seconds[found.choices[v]];
    } else {
      plan.strategies.push_back(strategy);
    }
  }
  add_moves(problem, found.choices, plan);
  add_gains(problem, found.choices, plan);
  return plan;
}

}  // namespace trireme::plan
