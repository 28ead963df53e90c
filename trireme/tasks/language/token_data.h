// Opens the token files that a config of the task names.
#pragma once

#include <memory>
#include <string>

#include "trireme/dataset/token_stream.h"
#include "trireme/tasks/language/language.h"

namespace trireme::tasks {

// Explains prefixes to users who gave something else as data.path. Opening the files reports all
// other errors.
// Throws: ConfigError
void check_token_path(const std::string& given);

// The samples of the files with this prefix, as [data] says, whose mask token is known.
// Throws: ConfigError, as the source does
std::shared_ptr<const dataset::TokenSamples> open_tokens(const std::string& prefix,
                                                         const LanguageConfig& config);

}  // namespace trireme::tasks
