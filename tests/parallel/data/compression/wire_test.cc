#include "trireme/parallel/data/compression/wire.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

at::Tensor rows_of(int rank, int64_t num_rows, int64_t width) {
  return (at::arange(num_rows * width, at::kFloat) * 0.37 + rank).sin().view({num_rows, width});
}

// The code that loses nothing.
RowCode exact_code(int64_t width) {
  return {.dtype = at::kFloat,
          .width = width,
          .encode = [](const at::Tensor& rows,
                       const at::Tensor& code) { code.copy_(rows.reshape(-1)); },
          .decode =
              [width](const at::Tensor& code) {
                return code.clone().view({-1, width});
              }};
}

TEST(Wire, AnExactCodeGivesTheSumInRankOrderAndTheStatedBytes) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    for (const int64_t num_rows : {0, 1, 2, 7, 60, 1001}) {
      SCOPED_TRACE(concat(ranks, " ranks, ", num_rows, " rows"));
      constexpr int64_t kWidth = 3;
      harness::run_ranks(ranks, [&](comm::Communicator& inner) {
        harness::CountingCommunicator group(inner);
        const at::Tensor rows = rows_of(inner.rank(), num_rows, kWidth);
        at::Tensor expected = rows_of(0, num_rows, kWidth);
        for (int r = 1; r < ranks; ++r) expected = expected + rows_of(r, num_rows, kWidth);
        const int64_t num_bytes = coded_all_reduce(rows, exact_code(kWidth), group);
        harness::assert_same_bits(rows, expected, "sum");
        EXPECT_EQ(num_bytes, group.ledger().of(group.name()).bytes);
        const int64_t n = num_rows * kWidth * 4;
        if (num_rows % ranks != 0) return;
        EXPECT_EQ(num_bytes, 2 * (ranks - 1) * n / ranks);
      });
    }
  }
}

TEST(Wire, CountedAllReduceCounts) {
  harness::run_ranks(3, [](comm::Communicator& inner) {
    harness::CountingCommunicator group(inner);
    const at::Tensor data = at::ones({100}, at::kDouble);
    const int64_t num_bytes = counted_all_reduce(data, group);
    EXPECT_EQ(num_bytes, group.ledger().of(group.name()).bytes);
    harness::assert_same_bits(data, at::full({100}, 3.0, at::kDouble), "sum");
  });
}

TEST(Wire, HooksComputeInAtLeastFp32) {
  EXPECT_EQ(compute_dtype(at::kBFloat16), at::kFloat);
  EXPECT_EQ(compute_dtype(at::kHalf), at::kFloat);
  EXPECT_EQ(compute_dtype(at::kFloat), at::kFloat);
  EXPECT_EQ(compute_dtype(at::kDouble), at::kDouble);
}

}  // namespace
}  // namespace trireme::parallel
