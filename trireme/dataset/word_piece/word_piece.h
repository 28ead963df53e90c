// WordPiece, the tokenizer of BERT, as Hugging Face's package `tokenizers` does it for a
// tokenizer.json: added tokens are found, text is normalised, cut into words and punctuation, and
// each word becomes the longest tokens that the vocabulary has, from its beginning on. A word for
// which it lacks any is the unknown token. Bytes that are not UTF-8 count as U+FFFD.
// Thread safe.
// Source: Devlin et al. 2018, arXiv:1810.04805, section 3; the search: Song et al. 2021,
//         arXiv:2012.15524, section 2
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/bounded_json.h"
#include "trireme/dataset/byte_level/added_tokens.h"
#include "trireme/dataset/byte_level/token_table.h"

namespace trireme::dataset {

// What the normaliser does, in this order.
struct WordNormal {
  bool cleans = true;          // takes control characters away, and makes white space spaces
  bool parts_chinese = true;   // puts spaces around Chinese characters
  bool strips_accents = true;  // takes nonspacing marks away, in normal form D
  bool lowers = true;          // makes letters small
};

struct WordPieceFile {
  TokenTable table{};
  int32_t unknown = 0;
  std::string continuing = "##";  // begins the tokens that do not begin a word
  size_t most_characters = 100;   // of a word that is not unknown
  WordNormal normal{};
};

// Whether a parsed tokenizer.json has the model WordPiece.
bool is_word_piece(const JsonView& root);

// Throws: ConfigError when the file is damaged, or has parts that this does not do
WordPieceFile read_word_piece(const JsonView& root);

class WordPiece {
 public:
  explicit WordPiece(WordPieceFile file);

  int64_t vocab_size() const { return std::ssize(file_.table.tokens); }
  int32_t unknown_token() const { return file_.unknown; }

  // Throws: ConfigError for 2 GiB or more of text
  std::vector<int32_t> encode(std::string_view text) const;
  // Words with spaces between them; added tokens as they are.
  // Throws: ConfigError for a token outside the vocabulary
  std::string decode(std::span<const int32_t> tokens) const;

 private:
  void encode_normalised(const std::u32string& text, std::vector<int32_t>& tokens) const;
  void encode_word(std::u32string_view word, std::vector<int32_t>& tokens) const;

  WordPieceFile file_;
  size_t longest_ = 1;            // characters of a token
  AddedTokens added_;             // looked for in the text as it is
  AddedTokens added_normalised_;  // looked for in normalised text
};

// The text as the words are cut from it.
std::u32string normalised(std::u32string text, const WordNormal& normal);

}  // namespace trireme::dataset
