#include "trireme/tasks/recommend/recommend_problem.h"

#include <gtest/gtest.h>

namespace trireme::tasks::inline internal {
namespace {

// 1000 rows of 4 numbers over 4 ranks, and one more for each row with the row-wise rule.
TEST(RecommendProblem, LimitsTheMemoryOfARanksColumnsAndStates) {
  for (const parallel::RowRule rule :
       {parallel::RowRule::kSgd, parallel::RowRule::kRowWiseAdaGrad}) {
    const bool has_states = rule == parallel::RowRule::kRowWiseAdaGrad;
    for (const int64_t memory : {3999, 4000, 7999, 8000}) {
      RecommendProblem problem;
      problem.config.tables.optimizer = rule;
      problem.config.tables.memory = memory;
      TableList list{
          .tables = {
              {.name = "t", .rows = 1000, .width = 4, .placement = mesh::Placement::sharded(1)}}};
      limit_memory(problem, 4, sizeof(float), "folder", list);
      const bool fits = memory >= (has_states ? 8000 : 4000);
      EXPECT_EQ(list.tables[0].memory_bytes, fits ? 0 : memory) << memory;
    }
  }
}

}  // namespace
}  // namespace trireme::tasks::inline internal
