#include "trireme/plan/shard/folded_elimination.h"

#include <algorithm>
#include <limits>

namespace trireme::plan {

FoldedElimination::FoldedElimination(const MinSum& problem)
    : tables_(problem.tables),
      variables_(problem.variables),
      neighbours_(problem.variables.size()),
      is_gone_(problem.variables.size(), 0),
      rounds_(problem.variables.size(), 0),
      queued_(problem.variables.size(), -1),
      queued_round_(problem.variables.size(), 0) {
  for (const MinSum::Edge& edge : problem.edges) connect(edge.a, edge.b, edge.table);
  const int count = static_cast<int>(variables_.size());
  for (int variable = 0; variable < count; ++variable) queue(variable);
  while (!queue_.empty()) {
    const int variable = std::get<2>(*queue_.begin());
    queue_.erase(queue_.begin());
    eliminate(variable);
  }
  for (int variable = 0; variable < count; ++variable) {
    if (!is_gone_[variable]) kept_.push_back(variable);
  }
}

double FoldedElimination::cost(const Side& side, int own, int other) const {
  const MinSum::Table& table = tables_[side.table];
  return side.turned ? table.at(other, own) : table.at(own, other);
}

void FoldedElimination::connect(int a, int b, int table) {
  const auto found = neighbours_[a].find(b);
  if (found != neighbours_[a].end()) {
    // Seen from the variable that has the rows of the old table.
    const bool turned = found->second.turned;
    table = sum_of(found->second.table, {table, turned});
    neighbours_[a][b] = {table, turned};
    neighbours_[b][a] = {table, !turned};
    return;
  }
  neighbours_[a][b] = {table, false};
  neighbours_[b][a] = {table, true};
}

int FoldedElimination::sum_of(int a, const Side& b) {
  const auto [found, is_new] = sums_.try_emplace({a, b.table, b.turned}, 0);
  if (!is_new) return found->second;
  MinSum::Table sum = tables_[a];
  for (int row = 0; row < sum.rows; ++row) {
    for (int column = 0; column < sum.columns; ++column)
      sum.costs[static_cast<size_t>(row * sum.columns + column)] += cost(b, row, column);
  }
  found->second = static_cast<int>(tables_.size());
  tables_.push_back(std::move(sum));
  return found->second;
}

double FoldedElimination::work_of(int variable) const {
  double work = choices(variable);
  for (const auto& [other, side] : neighbours_[variable]) work *= choices(other);
  return work;
}

void FoldedElimination::queue(int variable) {
  if (queued_[variable] >= 0) queue_.erase({queued_round_[variable], queued_[variable], variable});
  queued_[variable] = -1;
  if (is_gone_[variable] || neighbours_[variable].size() > 2) return;
  queued_[variable] = work_of(variable);
  queued_round_[variable] = rounds_[variable];
  queue_.insert({rounds_[variable], queued_[variable], variable});
}

void FoldedElimination::eliminate(int variable) {
  queued_[variable] = -1;
  std::vector<int> others;
  std::vector<Side> sides;
  for (const auto& [other, side] : neighbours_[variable]) {
    others.push_back(other);
    sides.push_back(side);
  }
  const Result& result = result_of(variables_[variable], sides);
  steps_.push_back({.variable = variable, .result = &result});
  Step& step = steps_.back();
  is_gone_[variable] = 1;
  neighbours_[variable].clear();
  for (const int other : others) {
    neighbours_[other].erase(variable);
    rounds_[other] = std::max(rounds_[other], rounds_[variable] + 1);
  }
  if (others.empty()) {
    constant_ += tables_[result.table].costs[0];
    return;
  }
  step.first = others[0];
  if (others.size() == 1) {
    variables_[others[0]] = sum_of(variables_[others[0]], {result.table, false});
  } else {
    step.second = others[1];
    connect(others[0], others[1], result.table);
  }
  for (const int other : others) queue(other);
}

const FoldedElimination::Result& FoldedElimination::result_of(int own,
                                                              const std::vector<Side>& sides) {
  Key key = {own};
  for (const Side& side : sides) {
    key.push_back(side.table);
    key.push_back(side.turned);
  }
  const auto [found, is_new] = results_.try_emplace(std::move(key));
  if (is_new) {
    Result result = compute(own, sides);
    found->second = std::move(result);
    MinSum::Table table{.rows = 1, .columns = 1, .costs = {}};
    const auto length = [&](const Side& side) {
      return side.turned ? tables_[side.table].rows : tables_[side.table].columns;
    };
    if (!sides.empty()) table.rows = length(sides[0]);
    if (sides.size() > 1) table.columns = length(sides[1]);
    table.costs.resize(found->second.best.size());
    for (size_t at = 0; at < table.costs.size(); ++at) {
      const int choice = found->second.best[at];
      double sum = tables_[own].at(choice, 0);
      if (!sides.empty()) sum += cost(sides[0], choice, static_cast<int>(at) / table.columns);
      if (sides.size() > 1) sum += cost(sides[1], choice, static_cast<int>(at) % table.columns);
      table.costs[at] = sum;
    }
    found->second.table = static_cast<int>(tables_.size());
    tables_.push_back(std::move(table));
  }
  return found->second;
}

FoldedElimination::Result FoldedElimination::compute(int own,
                                                     const std::vector<Side>& sides) const {
  const auto length = [&](size_t side) {
    if (side >= sides.size()) return 1;
    const MinSum::Table& table = tables_[sides[side].table];
    return sides[side].turned ? table.rows : table.columns;
  };
  // One row for each choice, so that the innermost loop runs over memory.
  const auto rows_of = [&](size_t side, int choice) {
    std::vector<double> row(static_cast<size_t>(length(side)), 0);
    if (side < sides.size()) {
      for (int other = 0; other < length(side); ++other)
        row[static_cast<size_t>(other)] = cost(sides[side], choice, other);
    }
    return row;
  };
  const auto rows = static_cast<size_t>(length(0)), columns = static_cast<size_t>(length(1));
  std::vector<double> least(rows * columns, std::numeric_limits<double>::infinity());
  Result result;
  result.best.assign(rows * columns, 0);
  for (int choice = 0; choice < tables_[own].rows; ++choice) {
    const std::vector<double> first = rows_of(0, choice), second = rows_of(1, choice);
    for (size_t row = 0; row < rows; ++row) {
      const double start = tables_[own].at(choice, 0) + first[row];
      double* to = &least[row * columns];
      int* best = &result.best[row * columns];
      for (size_t column = 0; column < columns; ++column) {
        const double sum = start + second[column];
        if (sum < to[column]) {
          to[column] = sum;
          best[column] = choice;
        }
      }
    }
  }
  return result;
}

MinSum FoldedElimination::rest() const {
  MinSum rest;
  rest.tables = tables_;
  std::map<int, int> number;
  for (const int variable : kept_) {
    number[variable] = static_cast<int>(rest.variables.size());
    rest.variables.push_back(variables_[variable]);
  }
  for (const int variable : kept_) {
    for (const auto& [other, side] : neighbours_[variable]) {
      if (!side.turned) rest.edges.push_back({number[variable], number[other], side.table});
    }
  }
  return rest;
}

std::vector<int> FoldedElimination::complete(const std::vector<int>& of_rest) const {
  std::vector<int> all(variables_.size(), 0);
  for (size_t i = 0; i < kept_.size(); ++i) all[kept_[i]] = of_rest[i];
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const int columns = tables_[step->result->table].columns;
    const int row = step->first < 0 ? 0 : all[step->first];
    const int column = step->second < 0 ? 0 : all[step->second];
    all[step->variable] = step->result->best[static_cast<size_t>(row * columns + column)];
  }
  return all;
}

}  // namespace trireme::plan
