#include "trireme/plan/shard/min_sum.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/plan/shard/bound_passes.h"
#include "trireme/plan/shard/folded_elimination.h"
#include "trireme/plan/shard/table_elimination.h"

namespace trireme::plan {
namespace {

double drawn_cost(harness::Draw& draw) { return static_cast<double>(draw.below(1000)) / 100; }

MinSum::Table drawn_table(harness::Draw& draw, int rows, int columns) {
  MinSum::Table table{.rows = rows, .columns = columns};
  for (int i = 0; i < rows * columns; ++i) table.costs.push_back(drawn_cost(draw));
  return table;
}

// Variables of two to four choices; a chain, and edges between any.
MinSum drawn_problem(uint64_t seed, int count) {
  harness::Draw draw(seed);
  MinSum problem;
  std::vector<int> choices;
  for (int v = 0; v < count; ++v) {
    choices.push_back(2 + draw.below(3));
    problem.variables.push_back(static_cast<int>(problem.tables.size()));
    problem.tables.push_back(drawn_table(draw, choices[v], 1));
  }
  const auto connect = [&](int a, int b) {
    problem.edges.push_back({a, b, static_cast<int>(problem.tables.size())});
    problem.tables.push_back(drawn_table(draw, choices[a], choices[b]));
  };
  for (int v = 1; v < count; ++v) connect(v - 1, v);
  for (int i = 0; i < 2 * count; ++i) {
    const int a = draw.below(count), b = draw.below(count);
    if (a != b) connect(a, b);
  }
  return problem;
}

double least_of_all(const MinSum& problem) {
  std::vector<int> choices(problem.variables.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, problem.cost_of(choices));
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == problem.tables[problem.variables[v]].rows)
      choices[v++] = 0;
    if (v == choices.size()) return least;
  }
}

TEST(MinSum, IsTheBestOfAllChoicesOfDrawnGraphs) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const MinSum problem = drawn_problem(seed, 9);
    const double least = least_of_all(problem);
    const MinSumResult found = minimise(problem);
    EXPECT_NEAR(found.cost, least, 1e-9) << seed;
    EXPECT_NEAR(found.bound, least, 1e-9) << seed;
    EXPECT_EQ(problem.cost_of(found.choices), found.cost);
  }
}

// Where tables may not grow, the bound holds, and what it leaves is exact.
TEST(MinSum, KeepsItsBoundWithoutElimination) {
  int num_exact = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const MinSum problem = drawn_problem(seed, 9);
    const double least = least_of_all(problem);
    const MinSumResult found = minimise(problem, /*most_entries=*/200);
    EXPECT_LE(found.bound, least + 1e-9) << seed;
    EXPECT_GE(found.cost, least - 1e-9) << seed;
    num_exact += found.cost - found.bound < 1e-6;
  }
  EXPECT_GE(num_exact, 25);
}

TEST(MinSum, TakesEqualBlocksOnce) {
  // A chain of equal pairs, each with a loop.
  MinSum problem;
  harness::Draw draw(7);
  problem.tables = {drawn_table(draw, 3, 1), drawn_table(draw, 3, 3), drawn_table(draw, 3, 3)};
  constexpr int kBlocks = 200;
  for (int block = 0; block < kBlocks; ++block) {
    const int first = static_cast<int>(problem.variables.size());
    problem.variables.insert(problem.variables.end(), 3, 0);
    problem.edges.push_back({first, first + 1, 1});
    problem.edges.push_back({first + 1, first + 2, 2});
    problem.edges.push_back({first, first + 2, 1});
    if (block > 0) problem.edges.push_back({first - 1, first, 2});
  }
  const FoldedElimination folded(problem);
  EXPECT_TRUE(folded.kept_variables().empty());
  EXPECT_LT(folded.num_distinct(), kBlocks * 3 / 2);
  const std::vector<int> choices = folded.complete({});
  EXPECT_NEAR(problem.cost_of(choices), folded.constant(), 1e-9);
  EXPECT_NEAR(minimise(problem).cost, folded.constant(), 1e-9);
}

TEST(BoundPasses, RiseAndLeaveOutOnlyWhatIsNoBest) {
  for (uint64_t seed = 100; seed < 120; ++seed) {
    const MinSum problem = drawn_problem(seed, 8);
    const double least = least_of_all(problem);
    BoundPasses passes(problem);
    passes.run();
    const double first = passes.bound();
    for (int i = 0; i < 30; ++i) passes.run();
    EXPECT_GE(passes.bound(), first);
    EXPECT_LE(passes.bound(), least + 1e-9);
    EXPECT_GE(passes.cost(), least - 1e-9);
    passes.leave_out(passes.cost() + 1e-9);
    std::vector<std::vector<int>> numbers;
    EXPECT_NEAR(least_of_all(passes.remaining(numbers)), least, 1e-9) << seed;
  }
}

TEST(TableElimination, RefusesTablesThatAreTooLarge) {
  const MinSum problem = drawn_problem(3, 9);
  const double entries = elimination_entries(problem);
  EXPECT_FALSE(eliminate(problem, entries - 1));
  const auto found = eliminate(problem, entries);
  ASSERT_TRUE(found);
  EXPECT_NEAR(problem.cost_of(*found), least_of_all(problem), 1e-9);
}

}  // namespace
}  // namespace trireme::plan
