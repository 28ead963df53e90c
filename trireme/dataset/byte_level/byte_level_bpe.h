// Byte-pair encoding over bytes, as Hugging Face's package `tokenizers` does it for tokenizer.json:
// added tokens are found, text is normalised, cut by regular expressions, and each part is merged.
// The tokens are the same, with two exceptions. The text of a token that only ends documents is
// text, and bytes that are not UTF-8, which `tokenizers` does not take, are one token each.
// Thread safe once constructed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/dataset/byte_level/added_tokens.h"
#include "trireme/dataset/byte_level/merges.h"
#include "trireme/dataset/byte_level/regex.h"
#include "trireme/dataset/byte_level/tokenizer_file.h"

namespace trireme::dataset {

// Whether texts have the usual end of a document (is_usual_end_of_document()).
enum class UsualEnd {
  kIsText,   // its name in a text is plain text, so that no text can end a document
  kIsToken,  // it is found, like all other added tokens: for text that a chat template writes
};

class ByteLevelBpe {
 public:
  // `end_of_document` is one of the file's added tokens. One that is not usual has a meaning of its
  // own in texts and is found there.
  // `source` begins every message.
  // Throws: ConfigError when text can be merged to the end of a document, or a pattern is refused
  ByteLevelBpe(TokenizerFile file, int32_t end_of_document, const std::string& source,
               UsualEnd usual_end = UsualEnd::kIsText);
  ~ByteLevelBpe();

  int64_t vocab_size() const { return std::ssize(tokens_); }
  int32_t end_of_document() const { return end_of_document_; }

  // Throws: ConfigError for 2 GiB or more of text, or when a pattern takes too many steps or
  //         too long
  std::vector<int32_t> encode(std::string_view text) const;
  // The same for well-formed UTF-8, and which token holds the first byte of some characters.
  // characters: where they begin in `text`, in order
  // holders:    becomes the number of the token of each
  // Throws: ConfigError also when one of them is composed with a character before it
  std::vector<int32_t> encode(std::string_view text, std::span<const size_t> characters,
                              std::vector<size_t>& holders) const;
  // A usual end of a document decodes to nothing, an added token to its content.
  // Throws: ConfigError for a token outside the vocabulary
  std::string decode(std::span<const int32_t> tokens) const;

 private:
  struct Step {
    bool adds_space = false;
    std::unique_ptr<Regex> regex;  // null: cuts nothing
  };
  struct Memory;  // of one call of encode()
  class Lease;

  void encode_well_formed(std::string_view text, Memory& memory) const;
  void encode_normalised(std::string_view text, Memory& memory) const;
  void cut(std::string_view text, size_t step, Memory& memory) const;
  void encode_part(std::string_view part, Memory& memory) const;
  void append(std::span<const int32_t> tokens, Memory& memory) const;
  std::vector<int32_t> tokens_of(std::string_view part, Memory& memory) const;

  std::vector<std::string> tokens_;  // the bytes of each
  std::array<int32_t, 256> bytes_{};
  MergeTable merges_;
  bool composes_;
  int32_t end_of_document_;
  int32_t hidden_;                // that no text has: end_of_document_, or -1 for none
  AddedTokens added_;             // looked for in the text as it is
  AddedTokens added_normalised_;  // looked for in normalised text
  std::vector<Step> steps_;
  // When merges are ignored, the tokens by their bytes, which are those of tokens_.
  std::unordered_map<std::string_view, int32_t> whole_;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Memory>> idle_;  // guarded by mutex_
};

// Unicode's composed normal form (NFC).

// The normal form of `text`, which must be well-formed UTF-8. Returns `text` itself when it has no
// character that could change it, otherwise a view of `memory`. Takes O(n log n) time.
// Source: Unicode Standard Annex 15
std::string_view composed(std::string_view text, std::string& memory);

}  // namespace trireme::dataset
