#include "trireme/comm/coalesced.h"

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

void check_against_dense(Communicator& group, const Options& options, int64_t count,
                         at::ScalarType dtype) {
  const at::Tensor data = share(group.rank(), count, dtype);
  const SparseAllReduce started = all_reduce_sparse(group, data, options);
  started.work->wait();
  started.finish();
  std::vector<at::Tensor> dense;
  for (int rank = 0; rank < group.size(); ++rank)
    dense.push_back(share(rank, count, dtype).to_dense());
  harness::assert_same_bits(data.to_dense(), model_of(dense, options.operation), "sparse");
}

TEST(SparseAllReduce, GivesTheDenseResult) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](Communicator& group) {
      for (const at::ScalarType dtype : {at::kFloat, at::kLong}) {
        for (const int64_t count : {0, 1, 5}) {
          for (const ReduceOp operation : {ReduceOp::kSum, ReduceOp::kAverage}) {
            check_against_dense(group, {.operation = operation}, count, dtype);
            check_against_dense(group, {.operation = operation, .background = true}, count, dtype);
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
        all_reduce_sparse(group, share(0, 2, at::kBool), {.operation = ReduceOp::kAverage}),
        "average is not defined on Bool");
    const at::Tensor other = at::eye(3 + group.rank()).to_sparse();
    EXPECT_ERROR(ConfigError, all_reduce_sparse(group, other, {}), "different shapes");
  });
}

}  // namespace
}  // namespace trireme::comm
