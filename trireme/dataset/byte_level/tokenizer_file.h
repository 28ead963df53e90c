// Reads Hugging Face's tokenizer.json of a byte-level BPE tokenizer: GPT-2's, Llama 3's, Qwen's,
// Mistral's from 2024 on. Refuses whatever would give other tokens than the package `tokenizers`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/byte_level/added_tokens.h"
#include "trireme/dataset/byte_level/merges.h"

namespace trireme::dataset::inline internal {

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

// The added token that ends a document: the one of content `name`. Without a name, the first that
// there is of <|endoftext|>, <|end_of_text|> and </s>.
// Throws: ConfigError when there is none
int32_t find_end_of_document(const TokenizerFile& file, std::string_view name,
                             const std::string& source);

}  // namespace trireme::dataset::inline internal
