#include "trireme/tasks/language/trained_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine_memory.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/train/saved_run.h"
#include "trireme/train/state.h"

namespace trireme::tasks {

namespace fs = std::filesystem;

std::unique_ptr<dataset::Tokenizer> find_tokenizer(const fs::path& folder,
                                                   const train::RunConfig& config) {
  // The path may be relative or end in a slash.
  const fs::path copy = fs::canonical(folder).parent_path().parent_path() / "tokenizer";
  for (const std::string& prefix : {copy.string(), language_of(config).data.path}) {
    if (fs::exists(dataset::tokenizer_json_path(prefix))) return dataset::load_tokenizer(prefix);
  }
  return nullptr;
}

train::RunConfig saved_language_config(const std::string& toml, const fs::path& folder) {
  return train::parse_saved_model(toml, folder.string(),
                                  train::default_config(train::TaskTable(&kLanguage, 1)));
}

namespace {

// Checks the size of the weights before they are allocated, because the numbers come from a file.
void check_size(const train::RunConfig& config, const fs::path& folder) {
  try {
    model::validate(language_of(config).model);
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(folder.string(), ": ", error.what()));
  }
  const auto bytes = static_cast<double>(model::num_parameters(language_of(config).model)) *
                     static_cast<double>(c10::elementSize(config.dtype()));
  const auto available = static_cast<double>(machine_memory_bytes());
  TRIREME_CHECK(bytes <= available, "the model of ", folder.string(), " has weights of ", bytes,
                " bytes and this machine a memory of ", available,
                "; use a machine with more, or a smaller model");
}

}  // namespace

TrainedModel load_trained_model(const fs::path& path, train::Weights weights) {
  const fs::path folder = train::find_checkpoint(path);
  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder);
  const train::RunState state = train::parse_state(manifest.state, folder.string(), manifest.step);
  train::require_weights(weights, manifest.state, folder);
  TrainedModel trained{saved_language_config(state.config, folder), nullptr, nullptr};
  trained.tokenizer = find_tokenizer(folder, trained.config);
  // Throws an error that says where the tokenizer should be.
  if (!trained.tokenizer)
    trained.tokenizer = dataset::load_tokenizer(language_of(trained.config).data.path);
  TRIREME_CHECK(trained.tokenizer->vocab_size() <= language_of(trained.config).model.vocab_size,
                "the tokenizer has ", trained.tokenizer->vocab_size(), " tokens and the model of ",
                folder.string(), " ", language_of(trained.config).model.vocab_size,
                ": it is another one; put the run's own beside checkpoints/, as tokenizer.*");
  check_size(trained.config, folder);
  trained.model = model::make_model(language_of(trained.config).model, trained.config.train.seed,
                                    trained.config.dtype());
  const c10::NoGradGuard no_grad;
  for (const auto& item : trained.model->module().named_parameters()) {
    const std::string name = train::tensor_of(item.key(), weights);
    const at::Tensor values = checkpoint::read_tensor(folder, manifest, name);
    train::require_finite(values, name, folder);
    item.value().copy_(values);
  }
  return trained;
}

}  // namespace trireme::tasks
