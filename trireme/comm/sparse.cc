#include "trireme/comm/sparse.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/coalesced.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

// The number of values on each rank.
std::vector<int64_t> gather_counts(Communicator& group, const at::Tensor& own, Options options) {
  std::vector<int64_t> shape = {own._nnz(), own.sparse_dim()};
  shape.insert(shape.end(), own.sizes().begin(), own.sizes().end());
  const at::Tensor mine = at::tensor(shape, at::kLong);
  std::vector<at::Tensor> shapes;
  for (int rank = 0; rank < group.size(); ++rank) shapes.push_back(at::empty_like(mine));
  options.background = false;
  group.all_gather(shapes, mine, options)->wait();
  const int64_t most = c10::multiply_integers(own.sizes().slice(0, own.sparse_dim()));
  std::vector<int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    TRIREME_CHECK(
        at::equal(shapes[rank].narrow(0, 1, mine.numel() - 1), mine.narrow(0, 1, mine.numel() - 1)),
        "all_reduce of sparse tensors: ranks ", group.rank(), " and ", rank, " of group ",
        group.name(), " have different shapes or sparse dims; expected the same");
    // A coalesced tensor has each index at most once.
    const int64_t count = shapes[rank].const_data_ptr<int64_t>()[0];
    TRIREME_CHECK(count >= 0 && count <= most, "all_reduce of sparse tensors: rank ", rank,
                  " of group ", group.name(), " says that it has ", count,
                  " values; expected 0 to ", most);
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

SparseAllReduce all_reduce_sparse(Communicator& group, const at::Tensor& data, Options options) {
  TRIREME_CHECK(data.is_sparse() && data.is_cpu(), "all_reduce of sparse tensors: got a ",
                data.layout(), " tensor on ", data.device(), "; expected a COO tensor on cpu");
  TRIREME_CHECK(options.operation == ReduceOp::kSum || options.operation == ReduceOp::kAverage,
                "all_reduce of sparse tensors: got ", name_of(options.operation),
                "; expected sum or average, for which missing elements are zeros");
  check_reducible(data.scalar_type(), options.operation);
  const c10::NoGradGuard no_grad;
  const at::Tensor own = data.detach().coalesce();
  std::vector<at::Tensor> indices;
  std::vector<at::Tensor> values;
  for (const int64_t count : gather_counts(group, own, options)) {
    indices.push_back(at::empty({own.sparse_dim(), count}, own.indices().options()));
    std::vector<int64_t> sizes = own.values().sizes().vec();
    sizes[0] = count;
    values.push_back(at::empty(sizes, own.values().options()));
  }
  WorkPtr work =
      all_gather_coalesced(group, {indices, values}, {own.indices(), own.values()}, options);
  auto finish = [data, indices, values, average = options.operation == ReduceOp::kAverage] {
    const c10::NoGradGuard without_grad;
    at::Tensor sum;
    for (size_t rank = 0; rank < indices.size(); ++rank) {
      const at::Tensor share = at::_sparse_coo_tensor_unsafe(
          indices[rank], values[rank], data.sizes(), values[rank].options().layout(at::kSparse),
          /*is_coalesced=*/true);
      sum = rank == 0 ? share : sum.add(share).coalesce();
    }
    if (average) sum = sum.div(static_cast<double>(indices.size()));
    at::Tensor(data).copy_(sum);
  };
  return {std::move(work), std::move(finish)};
}

}  // namespace trireme::comm
