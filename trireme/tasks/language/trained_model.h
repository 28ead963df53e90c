// Reads a model and its tokenizer from a checkpoint on one rank, for generation and evaluation.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

struct TrainedModel {
  train::RunConfig config;
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<dataset::Tokenizer> tokenizer;
  // Tokens that end a text: the end of a document, and those of an imported model.
  std::vector<int64_t> end_tokens{};
};

// The config in a checkpoint of a run of this task.
// Throws: CheckpointError, also when it is a run of another task
train::RunConfig saved_language_config(const std::string& toml,
                                       const std::filesystem::path& folder);

// The tokenizer of the run that saved the checkpoint `folder`: the copy in the run's folder, or the
// one beside its data (which may have moved). Null when neither exists.
// Throws: ConfigError when it is damaged
std::unique_ptr<dataset::Tokenizer> find_tokenizer(const std::filesystem::path& folder,
                                                   const train::RunConfig& config);

// The same without the model, for ranks that have its parts; `model` is null.
// Throws: as load_trained_model(), but for weights
TrainedModel describe_trained_model(const std::filesystem::path& path,
                                    train::Weights weights = train::Weights::kLast);

// The tokens of a text as a trained model reads it: behind the end of a document.
std::vector<int64_t> text_tokens(const dataset::Tokenizer& tokenizer, std::string_view text);

// Throws: CheckpointError, also for weights that are not finite or not there; ConfigError when
//         there is no tokenizer at data.path
TrainedModel load_trained_model(const std::filesystem::path& path,
                                train::Weights weights = train::Weights::kLast);

}  // namespace trireme::tasks
