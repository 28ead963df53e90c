#include "trireme/plan/shard/min_sum.h"

#include <algorithm>
#include <cmath>

#include "trireme/plan/shard/bound_passes.h"
#include "trireme/plan/shard/folded_elimination.h"
#include "trireme/plan/shard/table_elimination.h"

namespace trireme::plan {
namespace {

constexpr double kTolerance = 1e-9;  // of a cost: rounding

// Choices with their cost, and a bound.
MinSumResult result_of(const MinSum& problem, std::vector<int> choices, double bound) {
  MinSumResult result{.choices = std::move(choices)};
  result.cost = problem.cost_of(result.choices);
  result.bound = std::min(bound, result.cost);
  return result;
}

// What elimination cannot do as it is: passes leave choices out until it can.
MinSumResult minimise_by_bounds(const MinSum& problem, double most_entries) {
  constexpr int kRounds = 12, kPasses = 8;
  BoundPasses passes(problem);
  std::vector<std::vector<int>> numbers;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kPasses; ++i) passes.run();
    const double limit = passes.cost() + kTolerance * std::abs(passes.cost());
    if (passes.bound() >= passes.cost() - kTolerance * std::abs(passes.cost())) break;
    passes.leave_out(limit);
    const auto found = eliminate(passes.remaining(numbers), most_entries);
    if (!found) continue;
    std::vector<int> choices;
    for (size_t v = 0; v < found->size(); ++v)
      choices.push_back(numbers[v][static_cast<size_t>((*found)[v])]);
    const double cost = problem.cost_of(choices);
    return result_of(problem, cost <= passes.cost() ? choices : passes.choices(), cost);
  }
  return result_of(problem, passes.choices(), passes.bound());
}

}  // namespace

double MinSum::cost_of(const std::vector<int>& choices) const {
  double sum = 0;
  for (size_t v = 0; v < variables.size(); ++v) sum += tables[variables[v]].at(choices[v], 0);
  for (const Edge& edge : edges) sum += tables[edge.table].at(choices[edge.a], choices[edge.b]);
  return sum;
}

MinSumResult minimise(const MinSum& problem, double most_entries) {
  const FoldedElimination folded(problem);
  if (folded.kept_variables().empty()) {
    return result_of(problem, folded.complete({}), folded.constant());
  }
  const MinSum rest = folded.rest();
  if (const auto found = eliminate(rest, most_entries)) {
    return result_of(problem, folded.complete(*found), rest.cost_of(*found) + folded.constant());
  }
  const MinSumResult found = minimise_by_bounds(rest, most_entries);
  return result_of(problem, folded.complete(found.choices), found.bound + folded.constant());
}

}  // namespace trireme::plan
