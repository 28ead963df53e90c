// Opens the token files that a config of the task names, and makes samples of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/source.h"
#include "trireme/dataset/token_stream.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/language/sources/data_files.h"

namespace trireme::tasks {

// Where the files of [data] are: on this machine, or in object stores, with the environment's keys.
// Throws: ConfigError when the store's settings, or data.cache, cannot be used
std::shared_ptr<const FilePlace> open_place(const TokenDataConfig& data);

// Checks that URLs name objects of stores, without asking these.
// Throws: ConfigError
void check_place(const TokenDataConfig& data);

// The samples of files with one prefix, as [data] says, whose mask token is known.
struct NamedSamples {
  std::string name{};  // in their list; "": of data.path
  std::shared_ptr<const dataset::TokenSamples> samples{};
};
// Throws: ConfigError, as the source does
std::vector<NamedSamples> open_tokens(const DataFiles& files, const FilePlace& place,
                                      const LanguageConfig& config);

// What a run trains on: the samples of one file, or a dataset::BlendedSource of several.
// Throws: as open_tokens()
std::shared_ptr<const dataset::Source> open_training(const DataFiles& files, const FilePlace& place,
                                                     const LanguageConfig& config);
// The samples when they are of one file; null for a blend.
const dataset::TokenSamples* tokens_of(const dataset::Source* source);

// Checks that the objective and the model can be trained on several sources, if there are some, and
// reads their lists, without data.
// Throws: ConfigError
void check_sources(const LanguageConfig& config, const train::RunConfig& run);

// Checks that images stay whole, and that no router counts padding, without data.
// Throws: ConfigError
void check_images(const LanguageConfig& config);
void check_padding(const LanguageConfig& config);

// Checks that a model that reads the tokens behind a position hides some, and no other does,
// without data.
// Throws: ConfigError
void check_masking(const LanguageConfig& config);

// Checks the keys of span corruption against the model's and the task's others, without data.
// Throws: ConfigError
void check_spans(const LanguageConfig& config);

// Sets the tokens that the config leaves to the tokenizer, the length of targets, and the size of
// the model's vocabulary.
// Throws: ConfigError when the tokenizer has no such tokens, too few sentinels, or more tokens than
//         the model
void settle_tokens(LanguageConfig& config, const dataset::Tokenizer& tokenizer);

}  // namespace trireme::tasks
