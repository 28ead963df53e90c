// Converts text to tokens and back. Every tokenizer is exact: decode(encode(text)) == text for
// every string of bytes, valid UTF-8 or not. Exceptions are a tokenizer.json that asks for a normal
// form, a space before every text, or added tokens that take white space along, and WordPiece,
// which forgets white space. Thread safe once constructed.
// Tokenizers from Hugging Face's tokenizer.json (byte_level/byte_level_bpe.h,
// word_piece/word_piece.h) need PCRE2 and utf8proc: in a build without,
// json_tokenizer_available() says so, and the functions that need them throw ConfigError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

enum class TokenizerKind { kBytes, kBpe, kJson };

inline constexpr Choice<TokenizerKind> kTokenizerKinds[] = {
    {"bytes", TokenizerKind::kBytes}, {"bpe", TokenizerKind::kBpe}, {"json", TokenizerKind::kJson}};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual TokenizerKind kind() const = 0;
  virtual int64_t vocab_size() const = 0;
  // The token between two documents. It decodes to nothing, and no text encodes to it, unless it is
  // a kJson tokenizer's token of another purpose, such as the end of a turn: that one is found in
  // text, and decodes to its content, as in any other place.
  virtual int32_t end_of_document() const = 0;
  // The token of all text that the vocabulary lacks. Empty: every text has tokens.
  virtual std::optional<int32_t> unknown_token() const { return std::nullopt; }
  // A kJson tokenizer's added token with this content. Empty: it has none.
  virtual std::optional<int32_t> added_token(std::string_view /*content*/) const {
    return std::nullopt;
  }
  // The token that hides others in masked language modelling: the added token [MASK] or <mask>.
  // Empty: it has none.
  std::optional<int32_t> mask_token() const;

  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Throws: ConfigError for a token outside the vocabulary
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;

  // The data from which make_tokenizer(kind(), serialize(), end_of_document()) rebuilds it. Empty
  // for kBytes.
  virtual std::string serialize() const = 0;
};

// One token per byte, and 256 = end of document.
std::unique_ptr<Tokenizer> make_bytes_tokenizer();

// `end_of_document` chooses one of a kJson tokenizer's added tokens; without it the usual one is
// taken. The other kinds have their own.
// Throws: ConfigError for a damaged model, or in a build without the libraries of its kind
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerKind kind, std::string serialized,
                                          std::optional<int64_t> end_of_document = {});

// Writes PREFIX.tokenizer.json (kind, vocab_size, end_of_document) and PREFIX.tokenizer.model
// (SentencePiece's format for "bpe", Hugging Face's tokenizer.json for "json", none for "bytes").
// Writes the json last, atomically.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& prefix);

// Throws: ConfigError when a file is missing or damaged, names an unknown kind, or disagrees with
// the other; what `place` throws
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& prefix,
                                          const FilePlace& place = local_files());

// The two paths above.
std::filesystem::path tokenizer_json_path(const std::string& prefix);
std::filesystem::path tokenizer_model_path(const std::string& prefix);

// Whether this build has PCRE2 and utf8proc.
bool json_tokenizer_available();

// `file` is the content of a tokenizer.json. `end_of_document` is the content of the added token
// that ends a document, or its number; "" takes <|endoftext|>, <|end_of_text|>, </s> or [SEP].
// Throws: ConfigError when the file is damaged, describes a tokenizer of another kind, or lacks the
//         token that is to end documents
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, std::string_view end_of_document);
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, int64_t end_of_document);

// How the file spells the token that ends a document, which other readers of the file ask for.
// Throws: ConfigError as above
std::string spelled_end_of_document(std::string_view file, int64_t end_of_document);

}  // namespace trireme::dataset
