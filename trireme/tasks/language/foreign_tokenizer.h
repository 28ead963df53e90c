// The tokenizer in another program's folder of weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/dataset/tokenizer.h"

namespace trireme::tasks::inline internal {

// The first file there that a kind of this program reads: tokenizer.model or tokenizer.json. Null
// when there is none, or, with the reason in `problem`, when none can be used.
// vocab_size: of the model, which may have more rows
std::unique_ptr<dataset::Tokenizer> read_foreign_tokenizer(const std::filesystem::path& folder,
                                                           int64_t vocab_size,
                                                           std::string& problem);

// Compares the folder's tokenizer, if it has one that can be read, with that of the data, by a text
// of many scripts: tokens that mean something else would make noise of the weights.
// Throws: ConfigError with the first token that differs
void require_tokenizer_of(const std::filesystem::path& folder, int64_t vocab_size,
                          const dataset::Tokenizer& data);

}  // namespace trireme::tasks::inline internal
