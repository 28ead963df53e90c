#include "trireme/train/export/trained_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine_memory.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
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

std::unique_ptr<dataset::Tokenizer> find_tokenizer(const fs::path& folder,
                                                   const RunConfig& config) {
  // The path may be relative or end in a slash.
  const fs::path copy = fs::canonical(folder).parent_path().parent_path() / "tokenizer";
  for (const std::string& prefix : {copy.string(), config.data.path}) {
    if (fs::exists(dataset::tokenizer_json_path(prefix))) return dataset::load_tokenizer(prefix);
  }
  return nullptr;
}

namespace {

// Checks the size of the weights before they are allocated, because the numbers come from a file.
void check_size(const RunConfig& config, const fs::path& folder) {
  try {
    model::validate(config.model);
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(folder.string(), ": ", error.what()));
  }
  const auto bytes = static_cast<double>(model::num_parameters(config.model)) *
                     static_cast<double>(c10::elementSize(config.dtype()));
  const auto available = static_cast<double>(machine_memory_bytes());
  TRIREME_CHECK(bytes <= available, "the model of ", folder.string(), " has weights of ", bytes,
                " bytes and this machine a memory of ", available,
                "; use a machine with more, or a smaller model");
}

}  // namespace

void require_finite(const at::Tensor& values, const std::string& name, const fs::path& folder) {
  const int64_t surplus = values.numel() - at::isfinite(values).sum().item<int64_t>();
  if (surplus == 0) return;
  throw CheckpointError(concat(folder.string(), ": ", surplus, " of the ", values.numel(),
                               " values of \"", name,
                               "\" are NaN or infinite: training had diverged when it was saved; "
                               "use an earlier checkpoint"));
}

TrainedModel load_trained_model(const fs::path& path) {
  const fs::path folder = find_checkpoint(path);
  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder);
  const RunState state = parse_state(manifest.state, folder.string(), manifest.step);
  TrainedModel trained{parse_saved_model(state.config, folder.string()), nullptr, nullptr};
  trained.tokenizer = find_tokenizer(folder, trained.config);
  // Throws an error that says where the tokenizer should be.
  if (!trained.tokenizer) trained.tokenizer = dataset::load_tokenizer(trained.config.data.path);
  TRIREME_CHECK(trained.tokenizer->vocab_size() <= trained.config.model.vocab_size,
                "the tokenizer has ", trained.tokenizer->vocab_size(), " tokens and the model of ",
                folder.string(), " ", trained.config.model.vocab_size,
                ": it is another one; put the run's own beside checkpoints/, as tokenizer.*");
  check_size(trained.config, folder);
  trained.model =
      model::make_model(trained.config.model, trained.config.train.seed, trained.config.dtype());
  const c10::NoGradGuard no_grad;
  for (const auto& item : trained.model->module().named_parameters()) {
    const at::Tensor values = checkpoint::read_tensor(folder, manifest, item.key());
    require_finite(values, item.key(), folder);
    item.value().copy_(values);
  }
  return trained;
}

}  // namespace trireme::train
