#include "trireme/checkpoint/offline/reshard.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine_memory.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/offline/lazy_entry.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::checkpoint {
namespace {

// Dimension 0 is preferred because its boxes are contiguous.
mesh::Layout cut_evenly(const std::vector<int64_t>& shape, int num_ranks) {
  const std::vector<mesh::Axis> axes{{"shard", num_ranks}};
  if (shape.empty()) return {shape, axes};
  const auto longest = std::max_element(shape.begin(), shape.end());
  const auto dim = shape[0] >= num_ranks ? 0 : static_cast<int>(longest - shape.begin());
  return {shape, axes, {mesh::Placement::sharded(dim)}};
}

// Measured with 117 tensors and 32 to 128 ranks.
constexpr double kBytesPerPairOfRanks = 1500;

void require_room(size_t num_tensors, int num_ranks) {
  const double needed =
      kBytesPerPairOfRanks * static_cast<double>(num_tensors) * num_ranks * num_ranks;
  const auto available = static_cast<double>(machine_memory_bytes()) / 2;
  TRIREME_CHECK(needed <= available, "a checkpoint of ", num_tensors, " tensors for ", num_ranks,
                " ranks takes a memory of about ", needed, " bytes to plan; expected at most ",
                available, ", half of this machine's: choose fewer ranks");
}

}  // namespace

void reshard(const SavedTensors& source, const std::filesystem::path& root, int num_ranks,
             const OnProgress& on_progress) {
  TRIREME_CHECK(num_ranks >= 1 && num_ranks <= kMaxReshardRanks, "cannot write a checkpoint of ",
                num_ranks, " ranks; expected at least 1 and at most ", kMaxReshardRanks);
  require_room(source.tensors().size(), num_ranks);
  const int64_t total = num_bytes(source);
  std::mutex mutex;
  int64_t done = 0;
  const auto read = [&](const std::string& name, const mesh::Box& box) {
    at::Tensor values = source.read_box(name, box);
    const std::lock_guard lock(mutex);
    done += static_cast<int64_t>(values.nbytes());
    if (on_progress) on_progress(done, total);
    return values;
  };
  comm::run_thread_group(num_ranks, [&](comm::Communicator& world) {
    std::vector<Entry> entries;
    for (const auto& [name, tensor] : source.tensors()) {
      const mesh::Layout layout = cut_evenly(tensor.shape, num_ranks);
      const mesh::Box box = layout.local_box(world.rank());
      entries.push_back(lazy_entry(name, tensor.dtype, layout, world.rank(),
                                   [&read, &name, box] { return read(name, box); }));
    }
    save(root, source.step(), entries, source.state(), world, {.keep = 0});
  });
}

}  // namespace trireme::checkpoint
