#include "trireme/comm/coalesced.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {

// A call costs more than the bytes of a small tensor, so one call carries all tensors of a dtype.
// That changes no bit where sums are in rank order: they are taken element by element, wherever an
// element lies. Dtypes stay apart, because a conversion would round.

namespace {

using Clock = std::chrono::steady_clock;

// One call per dtype. The first wait() that finds all of them done copies the packed results to
// their tensors.
class PackedWork : public Work {
 public:
  void add(WorkPtr work, std::function<void()> unpack) {
    works_.push_back(std::move(work));
    unpacks_.push_back(std::move(unpack));
  }
  void wait() override {
    // All of them before anything is unpacked: after an error no tensor has a part of the result.
    for (const WorkPtr& work : works_) work->wait();
    unpack();
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    const auto end = Clock::now() + limit;
    for (const WorkPtr& work : works_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      if (!work->wait_for(std::max(left, std::chrono::milliseconds(0)))) return false;
    }
    unpack();
    return true;
  }
  bool poll() override {
    return std::ranges::all_of(works_, [](const WorkPtr& work) { return work->poll(); });
  }
  void abort() override {
    for (const WorkPtr& work : works_) work->abort();
  }
  int source() const override { return -1; }

 private:
  void unpack() {
    const c10::NoGradGuard no_grad;
    const std::lock_guard lock(mutex_);  // waits may come from several threads
    // exchange: a second wait unpacks nothing.
    for (const auto& function : std::exchange(unpacks_, {})) function();
  }

  std::vector<WorkPtr> works_;
  std::mutex mutex_;
  std::vector<std::function<void()>> unpacks_;  // guarded by mutex_
};

at::Tensor pack(const std::vector<at::Tensor>& tensors) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  return at::cat(flat);
}

void unpack_into(const std::vector<at::Tensor>& tensors, const at::Tensor& flat) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

// Memory for the result of pack().
at::Tensor empty_packed(const std::vector<at::Tensor>& tensors) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return at::empty({elements}, tensors.front().options().requires_grad(false));
}

// Groups the indices of tensors by dtype, in order of first appearance. The same on every rank.
std::vector<std::vector<size_t>> by_dtype(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::ranges::find(groups, tensors[i].scalar_type(), [&](const auto& group) {
      return tensors[group.front()].scalar_type();
    });
    if (found != groups.end()) {
      found->push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  return groups;
}

std::vector<at::Tensor> pick(const std::vector<at::Tensor>& tensors,
                             const std::vector<size_t>& indices) {
  std::vector<at::Tensor> picked;
  for (const size_t index : indices) picked.push_back(tensors[index]);
  return picked;
}

// Column `rank` of lists[i][rank].
std::vector<at::Tensor> pick(const std::vector<std::vector<at::Tensor>>& lists,
                             const std::vector<size_t>& indices, int rank) {
  std::vector<at::Tensor> picked;
  for (const size_t index : indices) picked.push_back(lists[index][rank]);
  return picked;
}

void check_lists(const char* operation, const Communicator& group, size_t count,
                 const std::vector<std::vector<at::Tensor>>& lists) {
  TRIREME_CHECK(lists.size() == count, operation, ": got ", lists.size(), " lists for ", count,
                " tensors; expected one each");
  for (const auto& list : lists) {
    TRIREME_CHECK(list.size() == static_cast<size_t>(group.size()), operation, ": got a list of ",
                  list.size(), " tensors, expected one for each of the ", group.size(),
                  " ranks of group ", group.name());
  }
}

}  // namespace

WorkPtr all_reduce_coalesced(Communicator& group, std::vector<at::Tensor> data, Options options) {
  auto work = std::make_shared<PackedWork>();
  // In the same order on every rank, or the calls would not match.
  for (const auto& indices : by_dtype(data)) {
    auto tensors = pick(data, indices);
    const at::Tensor flat = pack(tensors);
    work->add(group.all_reduce(flat, options), [tensors, flat] { unpack_into(tensors, flat); });
  }
  if (!options.background) work->wait();
  return work;
}

WorkPtr all_gather_coalesced(Communicator& group, std::vector<std::vector<at::Tensor>> outputs,
                             std::vector<at::Tensor> inputs, Options options) {
  check_lists("all_gather_coalesced", group, inputs.size(), outputs);
  auto work = std::make_shared<PackedWork>();
  for (const auto& indices : by_dtype(inputs)) {
    std::vector<std::vector<at::Tensor>> columns;
    std::vector<at::Tensor> flat;
    for (int rank = 0; rank < group.size(); ++rank) {
      columns.push_back(pick(outputs, indices, rank));
      flat.push_back(empty_packed(columns.back()));
    }
    work->add(group.all_gather(flat, pack(pick(inputs, indices)), options), [columns, flat] {
      for (size_t rank = 0; rank < columns.size(); ++rank) unpack_into(columns[rank], flat[rank]);
    });
  }
  if (!options.background) work->wait();
  return work;
}

WorkPtr reduce_scatter_coalesced(Communicator& group, std::vector<at::Tensor> outputs,
                                 std::vector<std::vector<at::Tensor>> inputs, Options options) {
  check_lists("reduce_scatter_coalesced", group, outputs.size(), inputs);
  auto work = std::make_shared<PackedWork>();
  for (const auto& indices : by_dtype(outputs)) {
    std::vector<at::Tensor> flat;
    for (int rank = 0; rank < group.size(); ++rank)
      flat.push_back(pack(pick(inputs, indices, rank)));
    const auto tensors = pick(outputs, indices);
    const at::Tensor output = empty_packed(tensors);
    work->add(group.reduce_scatter(output, flat, options),
              [tensors, output] { unpack_into(tensors, output); });
  }
  if (!options.background) work->wait();
  return work;
}

// The number of values differs by rank, so this takes two rounds: the shapes, then the values.
// Every rank gathers all of them and adds them up itself, one rank after another. Sums that are
// shared out among the ranks would move fewer bytes, but need a common set of indices first.

namespace {

// The number of values on each rank.
std::vector<int64_t> gather_counts(Communicator& group, const at::Tensor& own, Options options) {
  std::vector<int64_t> shape = {own._nnz(), own.sparse_dim()};
  // The sizes too: what follows would accept another shape that has as many values.
  shape.insert(shape.end(), own.sizes().begin(), own.sizes().end());
  const at::Tensor mine = at::tensor(shape, at::kLong);
  std::vector<at::Tensor> shapes;
  for (int rank = 0; rank < group.size(); ++rank) shapes.push_back(at::empty_like(mine));
  // In front: what follows has sizes that this call tells.
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

// In place. As the dense average: integers towards zero.
void divide(const at::Tensor& sum, int64_t divisor) {
  at::Tensor values = sum._values();
  if (at::isIntegralType(values.scalar_type(), /*includeBool=*/false)) {
    values.div_(divisor, "trunc");
  } else {
    values.div_(static_cast<double>(divisor));
  }
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
  // Each index once: that bounds the counts which peers may announce.
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
      // One rank after another, which is rank order.
      sum = rank == 0 ? share : sum.add(share).coalesce();
    }
    if (average) divide(sum, static_cast<int64_t>(indices.size()));
    at::Tensor(data).copy_(sum);
  };
  return {std::move(work), std::move(finish)};
}

}  // namespace trireme::comm
