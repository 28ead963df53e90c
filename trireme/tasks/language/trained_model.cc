#include "trireme/tasks/language/trained_model.h"

#include "trireme/base/error.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/sources/data_files.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

namespace fs = std::filesystem;

namespace {

// The prefix of a run's own copy, beside its checkpoints.
fs::path own_tokenizer(const fs::path& folder) {
  return train::run_folder_of(folder) / "tokenizer";
}

}  // namespace

std::unique_ptr<dataset::Tokenizer> find_tokenizer(const fs::path& folder,
                                                   const train::RunConfig& config) {
  const fs::path copy = own_tokenizer(folder);
  for (const std::string& prefix : {copy.string(), first_prefix(language_of(config).data)}) {
    const bool is_there = !prefix.empty() && fs::exists(dataset::tokenizer_json_path(prefix));
    if (is_there) return dataset::load_tokenizer(prefix);
  }
  return nullptr;
}

train::RunConfig saved_language_config(const std::string& toml, const fs::path& folder) {
  return train::parse_saved_model(toml, folder.string(),
                                  train::default_config(train::TaskTable(&kLanguage, 1)));
}

namespace {

void check_model(const train::RunConfig& config, const fs::path& folder) {
  try {
    model::validate(language_of(config).model);
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(folder.string(), ": ", error.what()));
  }
}

TrainedModel describe(const train::SavedModel& saved) {
  const fs::path& folder = saved.folder();
  TrainedModel trained{saved_language_config(saved.config(), folder), nullptr, nullptr, {}};
  const model::ModelConfig& config = language_of(trained.config).model;
  trained.tokenizer = find_tokenizer(folder, trained.config);
  if (!trained.tokenizer) {  // an error that says where the tokenizer should be
    const std::string prefix = first_prefix(language_of(trained.config).data);
    trained.tokenizer =
        dataset::load_tokenizer(prefix.empty() ? own_tokenizer(folder).string() : prefix);
  }
  TRIREME_CHECK(trained.tokenizer->vocab_size() <= config.vocab_size, "the tokenizer has ",
                trained.tokenizer->vocab_size(), " tokens and the model of ", folder.string(), " ",
                config.vocab_size,
                ": it is another one; put the run's own beside checkpoints/, as tokenizer.*");
  const ImportedFiles imported(folder);
  if (imported.belong_to(trained.tokenizer.get()))
    trained.end_tokens = imported.end_tokens(config.vocab_size);
  trained.end_tokens.push_back(trained.tokenizer->end_of_document());
  check_model(trained.config, folder);
  return trained;
}

}  // namespace

std::vector<int64_t> text_tokens(const dataset::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int64_t> tokens = {tokenizer.end_of_document()};
  for (const int32_t token : tokenizer.encode(text)) tokens.push_back(token);
  return tokens;
}

TrainedModel describe_trained_model(const fs::path& path, train::Weights weights) {
  return describe(train::SavedModel(path, weights));
}

TrainedModel load_trained_model(const fs::path& path, train::Weights weights) {
  const train::SavedModel saved(path, weights);
  TrainedModel trained = describe(saved);
  const model::ModelConfig& config = language_of(trained.config).model;
  saved.require_room(model::num_parameters(config), trained.config.dtype());
  trained.model = model::make_model(config, trained.config.train.seed, trained.config.dtype());
  saved.load(trained.model->module());
  return trained;
}

}  // namespace trireme::tasks
