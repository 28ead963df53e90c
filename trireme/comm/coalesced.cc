#include "trireme/comm/coalesced.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::comm {
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

}  // namespace trireme::comm
