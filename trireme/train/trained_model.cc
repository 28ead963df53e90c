#include "trireme/train/trained_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
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
  // The path may be short or end in a slash.
  const fs::path copy = fs::canonical(folder).parent_path().parent_path() / "tokenizer";
  for (const std::string& prefix : {copy.string(), config.data.path}) {
    if (fs::exists(dataset::tokenizer_json_path(prefix))) return dataset::load_tokenizer(prefix);
  }
  return nullptr;
}

TrainedModel load_trained_model(const fs::path& path) {
  const fs::path folder = find_checkpoint(path);
  const RunState state = parse_state(checkpoint::read_manifest(folder).state, folder.string());
  TrainedModel trained{parse_config(state.config, folder.string()), nullptr, nullptr};
  trained.tokenizer = find_tokenizer(folder, trained.config);
  // Says where it would have to be.
  if (!trained.tokenizer) trained.tokenizer = dataset::load_tokenizer(trained.config.data.path);
  TRIREME_CHECK(trained.tokenizer->vocab_size() <= trained.config.model.vocab_size,
                "the tokenizer has ", trained.tokenizer->vocab_size(), " tokens and the model of ",
                folder.string(), " ", trained.config.model.vocab_size,
                ": it is another one; put the run's own beside checkpoints/, as tokenizer.*");
  trained.model =
      model::make_model(trained.config.model, trained.config.train.seed, trained.config.dtype());
  const c10::NoGradGuard no_grad;
  for (const auto& item : trained.model->module().named_parameters()) {
    item.value().copy_(checkpoint::load_tensor(folder, item.key()));
  }
  return trained;
}

}  // namespace trireme::train
