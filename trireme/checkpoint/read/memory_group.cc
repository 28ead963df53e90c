#include "trireme/checkpoint/read/memory_group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint::inline internal {
namespace {

// Smaller messages are copied even between ranks that share memory.
constexpr int64_t kProbeNumbers = 8192;

at::Tensor shared_zeros(comm::Communicator& group) {
  try {
    return group.symmetric_empty({kProbeNumbers}, at::kLong).zero_();
  } catch (const ConfigError&) {  // the heap is full: as if nothing were shared
    return at::empty({kProbeNumbers}, at::TensorOptions().dtype(at::kLong)).zero_();
  }
}

// Whether this rank sees what rank 0 changes after it has lent it: its memory, or else a copy.
// Collective: every rank of `group`
bool sees_memory_of_root(comm::Communicator& group) {
  const comm::Options behind{.background = true};
  if (group.rank() == 0) {
    const at::Tensor numbers = shared_zeros(group);
    std::vector<comm::WorkPtr> sends;
    for (int peer = 1; peer < group.size(); ++peer)
      sends.push_back(group.send(numbers, peer, behind));
    group.barrier()->wait();  // all have it
    numbers.fill_(1);
    group.barrier()->wait();
    for (const comm::WorkPtr& send : sends) send->wait();
    return true;
  }
  const comm::LoanPtr loan =
      group.borrow({kProbeNumbers}, at::TensorOptions().dtype(at::kLong), 0, behind);
  loan->wait();
  group.barrier()->wait();
  group.barrier()->wait();
  return *loan->data().const_data_ptr<int64_t>() == 1;
}

}  // namespace

std::unique_ptr<comm::Communicator> split_by_memory(comm::Communicator& world, int color) {
  auto group = world.split(color, world.rank(), "loads");
  if (!group || group->size() == 1) return nullptr;
  const auto all = comm::all_gather_numbers(*group, sees_memory_of_root(*group) ? 1 : 0);
  return std::ranges::count(all, 0) == 0 ? std::move(group) : nullptr;
}

}  // namespace trireme::checkpoint::inline internal
