// Reads Hugging Face's tokenizer.json of a byte-level BPE tokenizer: GPT-2's, Llama 3's, Qwen's,
// Mistral's from 2024 on. Refuses whatever would give other tokens than the package `tokenizers`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/dataset/byte_level/added_tokens.h"
#include "trireme/dataset/byte_level/merges.h"

namespace trireme::dataset {

// One step of splitting: puts a space before a text that has none, then cuts at the matches.
struct SplitStep {
  bool adds_space = false;
  std::string pattern;  // Oniguruma's; empty: cuts nothing
};

struct TokenizerFile {
  std::vector<std::string> tokens{};  // the bytes of each, by its number
  std::array<int32_t, 256> bytes{};   // the token of each byte
  std::vector<int32_t> vocabulary{};  // tokens that stand for bytes, those of merges among them
  std::vector<Merge> merges{};        // in the order of their ranks
  bool ignores_merges = false;        // a part of text that is a token stays whole
  bool composes = false;              // text is turned into NFC first
  std::vector<AddedToken> added{};
  std::vector<SplitStep> steps{};
};

// Post-processor, truncation and padding are ignored: they change what is around a text, or cut it.
// `source` begins every message.
// Throws: ConfigError when the file is damaged, or describes another kind of tokenizer
TokenizerFile read_tokenizer_file(std::string_view text, const std::string& source);
TokenizerFile read_tokenizer_file(const JsonView& root);

// Parses a tokenizer.json of any model, within limits.
// Throws: ConfigError
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& source);

// Whether it is <|endoftext|>, <|end_of_text|> or </s>, which have no other purpose.
bool is_usual_end_of_document(const TokenizerFile& file, int32_t id);

// The added token that ends a document: the one of content `name`. Without a name, the first that
// there is of <|endoftext|>, <|end_of_text|>, </s> and [SEP].
// Throws: ConfigError when there is none
int32_t find_end_of_document(std::span<const AddedToken> added, std::string_view name,
                             const std::string& source);

// The alphabet in which byte-level tokenizers spell bytes. A printable Latin-1 character stands for
// itself; the other 68 bytes are U+0100 to U+0143 in the order of their values: a space is U+0120.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2

// The character of a byte, in UTF-8.
std::string spelled_byte(uint8_t byte);

// The bytes that a text of this alphabet stands for; none when it has another character.
std::optional<std::string> spelled_bytes(std::string_view text);

}  // namespace trireme::dataset
