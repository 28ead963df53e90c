// Opens the token files that a config of the task names, and makes samples of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/dataset/token_stream.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/tasks/language/language.h"

namespace trireme::tasks {

// Explains prefixes to users who gave something else as data.path. Opening the files reports all
// other errors.
// Throws: ConfigError
void check_token_path(const std::string& given);

// Sets the token that masks others, where the config leaves it to the tokenizer.
// Throws: ConfigError when the tokenizer has none
void settle_mask_token(LanguageConfig& config, const dataset::Tokenizer& tokenizer);

// Sets the size of the vocabulary, where the config leaves it to the tokenizer.
// Throws: ConfigError when it is below the tokenizer's
void settle_vocabulary(LanguageConfig& config, const dataset::Tokenizer& tokenizer);

// The samples of the files with this prefix, as [data] says, whose mask token is known.
// Throws: ConfigError, as the source does
std::shared_ptr<const dataset::TokenSamples> open_tokens(const std::string& prefix,
                                                         const LanguageConfig& config);

// key: that has the token; vocab_size: 0, unknown yet, checks nothing
// Throws: ConfigError when the vocabulary lacks it
void check_token(const char* key, int64_t token, int64_t vocab_size);

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

// Sets the tokens that the config leaves to the tokenizer, and the length of targets. The model's
// vocabulary comes later.
// Throws: ConfigError when the tokenizer has no such tokens, or too few sentinels
void settle_spans(LanguageConfig& config, const dataset::Tokenizer& tokenizer);

}  // namespace trireme::tasks
