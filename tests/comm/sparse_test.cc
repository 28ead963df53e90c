#include "trireme/comm/sparse.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Rank r has r more values than rank 0; places are in common, missing, or given twice.
at::Tensor share(int rank, int64_t count, at::ScalarType dtype = at::kFloat) {
  const at::Tensor rows = (at::arange(count + rank) * (rank + 2)).remainder(7);
  return at::sparse_coo_tensor(rows.unsqueeze(0), values_of(rank, {count + rank, 3}, dtype),
                               {7, 3});
}

TEST(SparseAllReduce, GivesTheDenseResult) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](Communicator& group) {
      for (const int64_t count : {0, 1, 5}) {
        for (const ReduceOp operation : {ReduceOp::kSum, ReduceOp::kAverage}) {
          for (const bool background : {false, true}) {
            const at::Tensor data = share(group.rank(), count);
            const SparseAllReduce started =
                all_reduce_sparse(group, data, {.operation = operation, .background = background});
            started.work->wait();
            started.finish();
            std::vector<at::Tensor> dense;
            for (int rank = 0; rank < size; ++rank) dense.push_back(share(rank, count).to_dense());
            harness::assert_same_bits(data.to_dense(), model_of(dense, operation), "sparse");
          }
        }
      }
    });
  }
}

TEST(SparseAllReduce, RefusesOtherOperationsAndShapes) {
  harness::run_ranks(2, [](Communicator& group) {
    const at::Tensor data = share(group.rank(), 2);
    EXPECT_ERROR(ConfigError, all_reduce_sparse(group, data, {.operation = ReduceOp::kMax}),
                 "got max; expected sum or average");
    EXPECT_ERROR(ConfigError, all_reduce_sparse(group, data.to_dense(), {}), "expected a COO");
    EXPECT_ERROR(
        ConfigError,
        all_reduce_sparse(group, share(0, 2, at::kLong), {.operation = ReduceOp::kAverage}),
        "average is not defined on Long");
    const at::Tensor other = at::eye(3 + group.rank()).to_sparse();
    EXPECT_ERROR(ConfigError, all_reduce_sparse(group, other, {}), "different shapes");
  });
}

}  // namespace
}  // namespace trireme::comm
