#include "trireme/checkpoint/checkpoint.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

mesh::Box Entry::box(int world_rank, int world_size) const {
  const int ranks = layout.num_ranks();
  // A layout of fewer axes than the mesh repeats over the outer ones.
  if (ranks < 1 || world_size % ranks != 0)
    throw CheckpointError(
        concat("\"", name, "\" has a layout of ", ranks, " ranks in a world of ", world_size));
  mesh::Box whole = layout.whole_box(rank == kInnermost ? world_rank % ranks : rank);
  if (local.sizes() != at::IntArrayRef(whole.size))
    throw CheckpointError(concat("\"", name, "\" has the shape ", local.sizes(),
                                 ", its layout gives this rank ", at::IntArrayRef(whole.size)));
  return whole;
}

std::vector<fs::path> list(const fs::path& root) {
  std::vector<std::tuple<int64_t, int64_t, fs::path>> found;
  std::error_code code;
  // A run that has not saved yet has no folder, which is not an error.
  if (!fs::exists(root, code) && !code) return {};
  auto items = fs::directory_iterator(root, code);
  if (code == std::errc::not_a_directory)
    throw CheckpointError(concat("cannot read ", root.string(), ": ", code.message()));
  if (code) throw Error(concat("cannot read ", root.string(), ": ", code.message()));
  for (const auto& item : items) {
    const std::string name = item.path().filename().string();
    if (step_of(name) < 0) continue;
    // The manifest comes last in a save, so where it is the checkpoint is whole.
    const fs::path manifest = item.path() / kManifestName;
    const bool is_complete = fs::exists(manifest, code);
    // It may be the newest: a run must not resume an older one because a disk or a permission
    // fails.
    if (code && code != std::errc::not_a_directory)
      throw Error(concat("cannot read ", manifest.string(), ": ", code.message()));
    if (is_complete) found.emplace_back(epoch_of(name), step_of(name), item.path());
  }
  // Epoch before step: a paused writer of an earlier epoch may have reached a higher step.
  std::sort(found.begin(), found.end());
  std::vector<fs::path> folders;
  for (auto& [epoch, step, path] : found) folders.push_back(std::move(path));
  return folders;
}

std::optional<fs::path> latest(const fs::path& root) {
  const std::vector<fs::path> folders = list(root);
  if (folders.empty()) return std::nullopt;
  return folders.back();
}

}  // namespace trireme::checkpoint
