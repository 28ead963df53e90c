#include "trireme/train/optimizer/update_rules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// The rate is below 1 / sqrt(6), so torch does not bound it in six steps.
// With gradients from 0.5 to 1.5 the estimate R C / mean(R) is at least 0.5^4 / 1.5^2, so an update
// is at most 1.5 * 6 times weights of at most about 1. Roundings: two means of at most 70 terms,
// six blends of four, and ten of the quotient and the norms.
TEST(AdafactorRule, AgreesWithTorch) {
  compare_with_reference({.name = "adafactor", .learning_rate = 0.1},
                         {.size = 10, .roundings = 180});
}

using Shape = std::vector<int64_t>;

parallel::Shard shard_of(const Shape& shape, const Shape& local_shape, mesh::Placement placement) {
  return {.name = "matrix",
          .weights = at::zeros(local_shape),
          .layout = mesh::Layout(shape, {{"shard", 3}}, {std::move(placement)})};
}

TEST(AdafactorRule, KeepsARowAndAColumnOfAMatrixAndAllOfAVector) {
  const auto states =
      AdafactorRule().state_of(shard_of({4, 5, 6}, {4, 5, 6}, mesh::Placement::replicated()));
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].name, "row_var");
  EXPECT_EQ(states[0].local_shape, Shape({4, 5, 1}));
  EXPECT_EQ(states[1].name, "col_var");
  EXPECT_EQ(states[1].local_shape, Shape({4, 1, 6}));
  for (const StateSpec& state : states) {
    EXPECT_EQ(state.layout.shape(), state.local_shape);
    EXPECT_EQ(state.layout.placements()[0], mesh::Placement::replicated());
  }
  const auto vector = AdafactorRule().state_of(shard_of({7}, {7}, mesh::Placement::replicated()));
  ASSERT_EQ(vector.size(), 1u);
  EXPECT_EQ(vector[0].local_shape, Shape({7}));
}

TEST(AdafactorRule, OwnersHaveTheFactorsAndTheOthersNothing) {
  struct Case {
    Shape shape;
    int dim;
    Shape cuts;
  };
  for (const auto& [shape, dim, cuts] :
       {Case{{4, 6}, 0, {0, 0, 4, 4}}, Case{{1, 6}, 1, {0, 6, 6, 6}},
        Case{{2, 3, 5}, 0, {0, 0, 0, 2}}}) {
    for (int rank = 0; rank < 3; ++rank) {
      Shape local_shape = shape;
      local_shape[dim] = cuts[rank + 1] - cuts[rank];
      const auto states = AdafactorRule().state_of(
          shard_of(shape, local_shape, mesh::Placement::sharded(dim, cuts)));
      ASSERT_EQ(states.size(), 2u);
      for (const StateSpec& state : states) {
        EXPECT_EQ(state.local_shape, state.layout.local_box(rank).size) << state.name;
        const bool is_owner = local_shape == shape;
        EXPECT_EQ(state.layout.local_box(rank).numel() > 0, is_owner) << state.name;
      }
    }
  }
}

TEST(AdafactorRule, RefusesAPartOfAMatrix) {
  const auto part = shard_of({4, 6}, {2, 6}, mesh::Placement::sharded(0, {0, 2, 4, 4}));
  EXPECT_THROW(AdafactorRule().state_of(part), InternalError);
}

}  // namespace
}  // namespace trireme::train
