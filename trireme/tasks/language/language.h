// The task of language modelling: predict each token from those before it. Models are the families
// of trireme/model, data is a token file.
#pragma once

#include <memory>
#include <string>

#include "trireme/base/key.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

struct TokenDataConfig {
  TRIREME_KEYS_BEGIN(TokenDataConfig)
  TRIREME_KEY(std::string, path, "data/python", kMustStay,
              "prefix that `trireme data prepare --output` wrote")
  TRIREME_KEY(bool, separate_documents, false, kMustStay,
              "attention only within documents, where a sequence holds parts of several")
  TRIREME_KEYS_END()
};

// The keys of the task, in the sections [model] and [data].
struct LanguageConfig {
  model::ModelConfig model;
  TokenDataConfig data;
};

std::unique_ptr<train::Task> make_language_task();
inline constexpr train::TaskKind kLanguage = {"language", "predict the next token of text",
                                              make_language_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
LanguageConfig& language_of(train::RunConfig& config);
const LanguageConfig& language_of(const train::RunConfig& config);
// The tokenizer of the task's data. Null before Task::open().
const dataset::Tokenizer* tokenizer_of(const train::RunConfig& config);

}  // namespace trireme::tasks
