#include "trireme/parallel/server/state/push_sums.h"

#include <cstring>
#include <mutex>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

at::Tensor gradient(int rank, c10::ScalarType dtype) {
  return (at::sin(at::arange(1001, at::kDouble) * (rank + 0.37)) * std::pow(10.0, rank)).to(dtype);
}

TEST(PushSums, DenseSumsHaveTheBitsOfAllReduce) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (int size = 1; size <= 5; ++size) {
      at::Tensor expected;
      std::mutex mutex;
      harness::run_ranks(size, [&](comm::Communicator& world) {
        at::Tensor data = gradient(world.rank(), dtype);
        world.all_reduce(data)->wait();
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) expected = data;
      });
      std::vector<Frame> frames(static_cast<size_t>(size));
      std::vector<const Frame*> pushes;
      for (int rank = 0; rank < size; ++rank) {
        frames[rank].payload = bytes_of(gradient(rank, dtype));
        pushes.push_back(&frames[rank]);
      }
      const Piece piece{.rows = 1001, .dtype = dtype};
      harness::assert_same_bits(sum_pushes(piece, pushes).values.view({-1}), expected, "sum");
    }
  }
}

Frame sparse(const std::vector<int64_t>& rows, const std::vector<float>& values) {
  Frame frame;
  frame.header.num_rows = static_cast<uint32_t>(rows.size());
  frame.payload = at::cat({bytes_of(at::tensor(rows, at::kLong)), bytes_of(at::tensor(values))});
  return frame;
}

TEST(PushSums, SparseRowsAreSummedInTheOrderOfPushes) {
  const Frame first = sparse({1, 4}, {1e8F, 2, 3, 4});
  const Frame second = sparse({}, {});
  const Frame third = sparse({0, 1}, {-0.0F, 6, 1, 8});
  const Frame fourth = sparse({1}, {-1e8F, 1});
  const std::vector<const Frame*> pushes{&first, &second, &third, &fourth};
  const Piece piece{.rows = 5, .width = 2, .is_sparse = true};
  const PushSum sum = sum_pushes(piece, pushes);
  EXPECT_EQ(sum.rows, (std::vector<int64_t>{0, 1, 4}));
  const at::Tensor expected =
      at::tensor({-0.0F, 6.0F, (1e8F + 1.0F) - 1e8F, 11.0F, 3.0F, 4.0F}).view({3, 2});
  harness::assert_same_bits(sum.values, expected, "sum");
}

TEST(PushSums, RowsAscendWithinThePiece) {
  check_rows(std::vector<int64_t>{0, 3, 4}, 5);
  check_rows({}, 0);
  for (const std::vector<int64_t>& rows :
       std::vector<std::vector<int64_t>>{{-1}, {5}, {2, 2}, {3, 1}}) {
    EXPECT_THROW(check_rows(rows, 5), ConfigError);
  }
}

}  // namespace
}  // namespace trireme::parallel
