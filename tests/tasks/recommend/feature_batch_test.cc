#include "trireme/tasks/recommend/recommend_problem.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {
namespace {

TEST(FeatureBatch, TakesTheIdsColumnByColumn) {
  // Two samples, three columns. What follows a sample's ids does not count.
  const at::Tensor ids = at::tensor({7L, 8L, 9L, 0L, 5L, 6L, -1L, -1L}).view({2, 4});
  const at::Tensor lengths = at::tensor({2L, 0L, 1L, 0L, 1L, 1L}).view({2, 3});
  const std::vector<int64_t> columns{2, 0, 1, 2};
  const parallel::JaggedIds found = ids_of_columns(ids, lengths, columns);
  EXPECT_EQ(found.num_samples, 2);
  harness::assert_same_bits(found.values, at::tensor({9L, 6L, 7L, 8L, 5L, 9L, 6L}), "values");
  harness::assert_same_bits(found.offsets, at::tensor({0L, 1L, 2L, 4L, 4L, 4L, 5L, 6L, 7L}),
                            "offsets");
}

TEST(FeatureBatch, TakesNoSamples) {
  const std::vector<int64_t> columns{0};
  const parallel::JaggedIds found =
      ids_of_columns(at::empty({0, 4}, at::kLong), at::empty({0, 1}, at::kLong), columns);
  EXPECT_EQ(found.num_samples, 0);
  EXPECT_EQ(found.values.numel(), 0);
  harness::assert_same_bits(found.offsets, at::zeros({1}, at::kLong), "offsets");
}

TEST(FeatureBatch, RefusesLengthsThatExceedTheRecord) {
  const std::vector<int64_t> columns{0};
  const at::Tensor ids = at::zeros({1, 4}, at::kLong);
  EXPECT_THROW(ids_of_columns(ids, at::tensor({3L, 2L}).view({1, 2}), columns), ConfigError);
  EXPECT_THROW(ids_of_columns(ids, at::tensor({-1L, 2L}).view({1, 2}), columns), ConfigError);
}

}  // namespace
}  // namespace trireme::tasks::inline internal
