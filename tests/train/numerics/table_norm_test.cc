#include "trireme/train/numerics/gradient_norm.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train::inline internal {
namespace {

using namespace harness;
using parallel::EmbeddingTables;
using parallel::JaggedIds;
using parallel::TableConfig;

constexpr int64_t kRows = 13, kSamples = 12;

std::vector<TableConfig> tables_at(const mesh::Placement& placement) {
  return {{.name = "a", .rows = kRows, .width = 5, .placement = placement},
          {.name = "b", .rows = kRows, .width = 33, .placement = placement}};
}

// The squares after one backward. Sample s uses the rows s and s + 1 of both tables.
std::vector<double> squares_on(comm::Communicator& group, const mesh::Placement& placement) {
  EmbeddingTables tables(
      tables_at(placement), &group,
      {.optimizer = {.rule = parallel::RowRule::kSgd}, .update = parallel::UpdateTime::kOnStep});
  const int64_t begin = kSamples * group.rank() / group.size();
  const int64_t end = kSamples * (group.rank() + 1) / group.size();
  const at::Tensor samples = at::arange(begin, end);
  const at::Tensor list = at::stack({samples, samples + 1}, 1).flatten();
  const JaggedIds ids =
      parallel::jagged_ids(at::cat({list, list}), at::full({2, end - begin}, 2, at::kLong));
  const at::Tensor found = tables.look_up(ids).pooled_BW;
  const at::Tensor scale = at::arange(38, at::kFloat).sin() * samples.unsqueeze(1).add(1).sqrt();
  found.backward(scale.to(at::kFloat));
  return table_squares(tables, group);
}

TEST(TableNorm, HasTheSameBitsForEveryPlacement) {
  std::vector<double> expected;
  run_ranks(1, [&](comm::Communicator& group) {
    expected = squares_on(group, mesh::Placement::replicated());
  });
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_GT(expected[1], expected[0]);
  for (const int world : {1, 2, 3, 4}) {
    for (const auto& placement :
         {mesh::Placement::replicated(), mesh::Placement::sharded(0), mesh::Placement::sharded(1),
          parallel::whole_on(world - 1, kRows, world)}) {
      run_ranks(world, [&](comm::Communicator& group) {
        EXPECT_EQ(squares_on(group, placement), expected);
      });
    }
  }
}

TEST(TableNorm, SaysThatAGradientIsNotFinite) {
  run_ranks(2, [](comm::Communicator& group) {
    EmbeddingTables tables(tables_at(mesh::Placement::sharded(0)), &group,
                           {.update = parallel::UpdateTime::kOnStep});
    const JaggedIds ids = parallel::jagged_ids(at::tensor({1L, 2L}), at::ones({2, 1}, at::kLong));
    const at::Tensor found = tables.look_up(ids).pooled_BW;
    const bool is_bad = group.rank() == 1;
    found.backward(at::full({1, 38}, is_bad ? HUGE_VAL : 1.0, at::kFloat));
    for (const double squares : table_squares(tables, group)) EXPECT_TRUE(std::isnan(squares));
  });
}

TEST(TableNorm, IsZeroWithoutGradients) {
  run_ranks(2, [](comm::Communicator& group) {
    const EmbeddingTables tables(tables_at(mesh::Placement::replicated()), &group,
                                 {.update = parallel::UpdateTime::kOnStep});
    EXPECT_EQ(table_squares(tables, group), std::vector<double>(2));
  });
}

}  // namespace
}  // namespace trireme::train::inline internal
