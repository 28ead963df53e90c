#include "trireme/train/state/saved_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/weight_average.h"
#include "trireme/train/state/open_tables.h"
#include "trireme/train/state/run_state.h"

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

fs::path run_folder_of(const fs::path& checkpoint) {
  return fs::canonical(checkpoint).parent_path().parent_path();
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

// Takes no memory: the least and the largest value are NaN if any is.
bool is_finite(const at::Tensor& values) {
  if (values.numel() == 0) return true;
  const auto [least, most] = at::aminmax(values);
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

void require_finite(const at::Tensor& values, const std::string& name, const fs::path& folder) {
  if (is_finite(values)) return;
  require_finite(values.numel() - at::isfinite(values).sum().item<int64_t>(), values.numel(), name,
                 folder);
}

void require_finite(int64_t num_not_finite, int64_t num_values, const std::string& name,
                    const fs::path& folder) {
  if (num_not_finite == 0) return;
  throw CheckpointError(concat(folder.string(), ": ", num_not_finite, " of the ", num_values,
                               " values of \"", name,
                               "\" are NaN or infinite: training had diverged when it was saved; "
                               "use an earlier checkpoint"));
}

at::Tensor in_dtype(const at::Tensor& values, c10::ScalarType dtype, const std::string& name) {
  if (values.scalar_type() == dtype) return values;
  at::Tensor converted = values.to(dtype);
  TRIREME_CHECK(is_finite(converted), name, " has a value of ", values.abs().max().item<double>(),
                ", which ", c10::toString(dtype), " cannot hold: choose bf16 or fp32");
  return converted;
}

SavedModel::SavedModel(const fs::path& path, Weights weights)
    : folder_(find_checkpoint(path)),
      weights_(weights),
      manifest_(std::make_shared<const checkpoint::Manifest>(checkpoint::read_manifest(folder_))),
      config_(parse_state(manifest_->state, folder_.string(), manifest_->step).config) {
  require_weights(weights, manifest_->state, folder_);
}

void SavedModel::require_room(int64_t num_parameters, c10::ScalarType dtype) const {
  const auto bytes =
      static_cast<double>(num_parameters) * static_cast<double>(c10::elementSize(dtype));
  const auto available = static_cast<double>(machine_memory_bytes());
  TRIREME_CHECK(bytes <= available, "the model of ", folder_.string(), " has weights of ", bytes,
                " bytes and this machine a memory of ", available,
                "; use a machine with more, or a smaller model");
}

void SavedModel::load(torch::nn::Module& module) const {
  const c10::NoGradGuard no_grad;
  const auto fill = [this](at::Tensor& tensor, const std::string& name) {
    const at::Tensor values = checkpoint::read_tensor(folder_, *manifest_, name);
    require_finite(values, name, folder_);
    tensor.copy_(values);
  };
  for (auto& item : module.named_parameters()) fill(item.value(), tensor_of(item.key(), weights_));
  for (auto& item : module.named_buffers()) fill(item.value(), item.key());
}

int64_t SavedModel::step() const { return manifest_->step; }

void SavedModel::load(parallel::EmbeddingTables& tables) const {
  load(tables, *comm::make_thread_group(1).front());
}

void SavedModel::load(parallel::EmbeddingTables& tables, comm::Communicator& world) const {
  const c10::NoGradGuard no_grad;
  OpenTablesLoad open({&tables}, folder_, checkpoint::inspect(folder_), nullptr, world);
  std::vector<checkpoint::Entry> entries = table_entries(tables);
  std::erase_if(entries, [](const checkpoint::Entry& entry) {
    return entry.name.starts_with(kOptimizerPrefix);
  });
  std::ranges::move(open.entries(), std::back_inserter(entries));
  checkpoint::load(folder_, entries, world, {.strict = false});
  for (const checkpoint::Entry& entry : entries) {
    if (entry.local.is_floating_point()) require_finite(entry.local, entry.name, folder_);
  }
  open.finish(world);
  tables.set_num_steps(parse_state(manifest_->state, folder_.string(), step()).optimizer_steps);
}

}  // namespace trireme::train
