#include "trireme/train/saved_run.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/weight_average.h"
#include "trireme/train/state.h"

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

std::string tensor_of(const std::string& parameter, Weights weights) {
  return weights == Weights::kAverage ? callback_tensor(WeightAverage::kName, parameter)
                                      : parameter;
}

void require_weights(Weights weights, const std::string& state, const fs::path& folder) {
  if (weights == Weights::kLast) return;
  const auto callbacks = parse_state(state, folder.string()).callbacks;
  const auto found = callbacks.find(std::string(WeightAverage::kName));
  if (found != callbacks.end() && WeightAverage::steps_in(found->second) > 0) return;
  throw CheckpointError(concat(folder.string(),
                               " has no average of the weights; train with "
                               "average.decay, or use the last weights"));
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
