// A tokenizer from Hugging Face's tokenizer.json (byte_level/byte_level_bpe.h).
// In a build without PCRE2 or utf8proc, every function but json_tokenizer_available() throws
// ConfigError.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset::inline internal {

// Whether this build has PCRE2 and utf8proc.
bool json_tokenizer_available();

// `file` is the content of a tokenizer.json. `end_of_document` is the content of the added token
// that ends a document, or its number; "" takes <|endoftext|>, <|end_of_text|> or </s>.
// Throws: ConfigError when the file is damaged, describes a tokenizer of another kind, or lacks the
//         token that is to end documents
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, std::string_view end_of_document);
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, int64_t end_of_document);

// How the file spells the token that ends a document, which other readers of the file ask for.
// Throws: ConfigError as above
std::string spelled_end_of_document(std::string_view file, int64_t end_of_document);

}  // namespace trireme::dataset::inline internal
