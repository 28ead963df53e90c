#include "trireme/plan/shard/bound_passes.h"

#include <algorithm>
#include <limits>

namespace trireme::plan {
namespace {

constexpr double kNever = 1e30;  // beside costs in seconds; sums of it stay finite

size_t index_of(const std::vector<double>& costs) {
  return static_cast<size_t>(std::ranges::min_element(costs) - costs.begin());
}

}  // namespace

BoundPasses::BoundPasses(const MinSum& problem)
    : problem_(problem),
      ends_(problem.variables.size()),
      num_lower_(problem.variables.size(), 0),
      num_higher_(problem.variables.size(), 0),
      messages_(2 * problem.edges.size()),
      is_out_(problem.variables.size()),
      bound_(-std::numeric_limits<double>::infinity()),
      best_cost_(std::numeric_limits<double>::infinity()) {
  for (size_t v = 0; v < problem.variables.size(); ++v)
    is_out_[v].assign(static_cast<size_t>(problem.tables[problem.variables[v]].rows), 0);
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const MinSum::Edge& edge = problem.edges[e];
    ends_[edge.a].push_back({static_cast<int>(e), edge.b, true});
    ends_[edge.b].push_back({static_cast<int>(e), edge.a, false});
    ++(edge.b < edge.a ? num_lower_ : num_higher_)[edge.a];
    ++(edge.a < edge.b ? num_lower_ : num_higher_)[edge.b];
    messages_[2 * e].assign(static_cast<size_t>(problem.tables[edge.table].rows), 0);
    messages_[2 * e + 1].assign(static_cast<size_t>(problem.tables[edge.table].columns), 0);
  }
}

double BoundPasses::cost(const End& end, int own, int other) const {
  const MinSum::Table& table = problem_.tables[problem_.edges[end.edge].table];
  return end.has_rows ? table.at(own, other) : table.at(other, own);
}

BoundPasses::Costs BoundPasses::own_costs(int variable) const {
  Costs costs = problem_.tables[problem_.variables[variable]].costs;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (is_out_[variable][i]) costs[i] = kNever;
  }
  for (const End& end : ends_[variable]) {
    const Costs& message = to(end);
    for (size_t i = 0; i < costs.size(); ++i) costs[i] += message[i];
  }
  return costs;
}

// Of a variable's costs, the part that each edge to later variables gets.
double BoundPasses::share(int variable) const {
  return 1.0 / std::max({1, num_lower_[variable], num_higher_[variable]});
}

// The costs of edges and variables are divided anew, so that the least of each add up to the most.
void BoundPasses::pass(bool is_forward) {
  is_forward_ = is_forward;
  pass_bound_ = 0;
  const int count = static_cast<int>(ends_.size());
  for (int i = 0; i < count; ++i) {
    const int variable = is_forward ? i : count - 1 - i;
    const Costs own = own_costs(variable);
    const double part = share(variable);
    const int later = is_forward ? num_higher_[variable] : num_lower_[variable];
    pass_bound_ += (1 - part * later) * own[index_of(own)];
    for (const End& end : ends_[variable]) {
      if (!is_before(variable, end.other)) continue;
      const Costs& back = to(end);
      Costs& message = from(end);
      std::ranges::fill(message, std::numeric_limits<double>::infinity());
      const MinSum::Table& table = problem_.tables[problem_.edges[end.edge].table];
      for (size_t x = 0; x < own.size(); ++x) {
        const double start = part * own[x] - back[x];
        if (own[x] >= kNever / 2) continue;
        const size_t stride = end.has_rows ? 1 : static_cast<size_t>(table.columns);
        const double* costs =
            table.costs.data() + (end.has_rows ? x * static_cast<size_t>(table.columns) : x);
        for (size_t y = 0; y < message.size(); ++y)
          message[y] = std::min(message[y], start + costs[y * stride]);
      }
      const double least = message[index_of(message)];
      for (double& each : message) each -= least;
      pass_bound_ += least;
    }
  }
  bound_ = std::max(bound_, pass_bound_);
}

void BoundPasses::run() {
  pass(true);
  round_choices();
  pass(false);
}

// Each variable's best behind those that have chosen; messages speak for the others.
void BoundPasses::round_choices() {
  std::vector<int> choices(ends_.size(), 0);
  for (int variable = 0; variable < static_cast<int>(ends_.size()); ++variable) {
    Costs costs = problem_.tables[problem_.variables[variable]].costs;
    for (size_t i = 0; i < costs.size(); ++i) {
      if (is_out_[variable][i]) costs[i] = kNever;
    }
    for (const End& end : ends_[variable]) {
      for (size_t i = 0; i < costs.size(); ++i) {
        costs[i] +=
            end.other < variable ? cost(end, static_cast<int>(i), choices[end.other]) : to(end)[i];
      }
    }
    choices[variable] = static_cast<int>(index_of(costs));
  }
  improve(choices);
  const double sum = problem_.cost_of(choices);
  if (sum >= best_cost_) return;
  best_cost_ = sum;
  best_ = std::move(choices);
}

void BoundPasses::improve(std::vector<int>& choices) const {
  constexpr int kMostRounds = 20;
  bool changes = true;
  for (int round = 0; round < kMostRounds && changes; ++round) {
    changes = false;
    for (size_t variable = 0; variable < ends_.size(); ++variable) {
      Costs costs = problem_.tables[problem_.variables[variable]].costs;
      for (const End& end : ends_[variable]) {
        for (size_t i = 0; i < costs.size(); ++i)
          costs[i] += cost(end, static_cast<int>(i), choices[end.other]);
      }
      const int best = static_cast<int>(index_of(costs));
      if (costs[static_cast<size_t>(best)] >= costs[static_cast<size_t>(choices[variable])])
        continue;
      choices[variable] = best;
      changes = true;
    }
  }
}

// With one choice fixed, the bound grows by what that choice costs above the least, in the variable
// and in its edges to those that the last pass came to later.
void BoundPasses::leave_out(double limit) {
  for (int variable = 0; variable < static_cast<int>(ends_.size()); ++variable) {
    const Costs own = own_costs(variable);
    const double part = share(variable), least = own[index_of(own)];
    const int later = is_forward_ ? num_higher_[variable] : num_lower_[variable];
    Costs more(own.size());
    for (size_t i = 0; i < own.size(); ++i) more[i] = (1 - part * later) * (own[i] - least);
    for (const End& end : ends_[variable]) {
      if (!is_before(variable, end.other)) continue;
      const Costs& out = messages_[2 * end.edge + (end.has_rows ? 1 : 0)];
      const Costs& back = to(end);
      Costs edge(own.size(), std::numeric_limits<double>::infinity());
      for (size_t x = 0; x < own.size(); ++x) {
        for (size_t y = 0; y < out.size(); ++y)
          edge[x] = std::min(edge[x], cost(end, static_cast<int>(x), static_cast<int>(y)) - out[y]);
        edge[x] += part * own[x] - back[x];
      }
      const double least_of_edge = edge[index_of(edge)];
      for (size_t x = 0; x < own.size(); ++x) more[x] += edge[x] - least_of_edge;
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (pass_bound_ + more[i] > limit) is_out_[variable][i] = 1;
    }
    if (!best_.empty()) is_out_[variable][static_cast<size_t>(best_[variable])] = 0;
  }
}

MinSum BoundPasses::remaining(std::vector<std::vector<int>>& numbers) const {
  numbers.assign(ends_.size(), {});
  for (size_t v = 0; v < ends_.size(); ++v) {
    for (size_t i = 0; i < is_out_[v].size(); ++i) {
      if (!is_out_[v][i]) numbers[v].push_back(static_cast<int>(i));
    }
  }
  const auto part = [&](const MinSum::Table& table, const std::vector<int>& rows,
                        const std::vector<int>& columns) {
    MinSum::Table result{.rows = static_cast<int>(rows.size()),
                         .columns = static_cast<int>(columns.size())};
    for (const int row : rows) {
      for (const int column : columns) result.costs.push_back(table.at(row, column));
    }
    return result;
  };
  MinSum rest;
  for (size_t v = 0; v < ends_.size(); ++v) {
    rest.variables.push_back(static_cast<int>(rest.tables.size()));
    rest.tables.push_back(part(problem_.tables[problem_.variables[v]], numbers[v], {0}));
  }
  for (const MinSum::Edge& edge : problem_.edges) {
    rest.edges.push_back({edge.a, edge.b, static_cast<int>(rest.tables.size())});
    rest.tables.push_back(part(problem_.tables[edge.table], numbers[edge.a], numbers[edge.b]));
  }
  return rest;
}

}  // namespace trireme::plan
