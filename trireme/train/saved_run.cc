#include "trireme/train/saved_run.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {

namespace fs = std::filesystem;

fs::path find_checkpoint(const fs::path& path) {
  if (fs::exists(path / "manifest.json")) return path;
  for (const fs::path& root : {path / "checkpoints", path}) {
    if (!fs::is_directory(root)) continue;
    if (const auto newest = checkpoint::latest(root)) return *newest;
  }
  throw CheckpointError(concat("no checkpoint in ", path.string(),
                               "; expected a run's folder, or one of its checkpoints/step-*"));
}

void require_finite(const at::Tensor& values, const std::string& name, const fs::path& folder) {
  const int64_t surplus = values.numel() - at::isfinite(values).sum().item<int64_t>();
  if (surplus == 0) return;
  throw CheckpointError(concat(folder.string(), ": ", surplus, " of the ", values.numel(),
                               " values of \"", name,
                               "\" are NaN or infinite: training had diverged when it was saved; "
                               "use an earlier checkpoint"));
}

}  // namespace trireme::train
