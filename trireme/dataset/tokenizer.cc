#include "trireme/dataset/tokenizer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/file/as_config_error.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include "trireme/dataset/byte_level/byte_level_bpe.h"
#include "trireme/dataset/byte_level/tokenizer_file.h"
#include "trireme/dataset/word_piece/word_piece.h"
#endif

namespace trireme::dataset {
namespace {

class BytesTokenizer : public Tokenizer {
 public:
  TokenizerKind kind() const override { return TokenizerKind::kBytes; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  std::string serialize() const override { return ""; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens(text.size());
    for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
    return tokens;
  }

  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) {
      TRIREME_CHECK(token >= 0 && token < vocab_size(), "token ", token,
                    " is outside the vocabulary of ", vocab_size(), " (tokenizer bytes)");
      if (token != end_of_document()) text.push_back(static_cast<char>(token));
    }
    return text;
  }
};

constexpr size_t kMaxDescriptionBytes = size_t{64} << 10;
constexpr size_t kMaxModelBytes = size_t{256} << 20;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

std::string read_or_explain(const std::filesystem::path& path, size_t max_bytes,
                            const FilePlace& place) {
  const std::string name = path.string();
  return as_config_error([&] {
    const std::unique_ptr<ByteSource> file = place.find(name);
    TRIREME_CHECK(file, "tokenizer file ", name,
                  " does not exist: `trireme data prepare` writes it beside the token files");
    return read_all(*file, max_bytes);
  });
}

}  // namespace

std::optional<int32_t> Tokenizer::mask_token() const {
  const std::optional<int32_t> found = added_token("[MASK]");
  return found ? found : added_token("<mask>");
}

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerKind kind, std::string serialized,
                                          std::optional<int64_t> end_of_document) {
  switch (kind) {
    case TokenizerKind::kBytes: return make_bytes_tokenizer();
    case TokenizerKind::kBpe: return make_bpe_tokenizer(std::move(serialized));
    case TokenizerKind::kJson:
      return end_of_document ? make_json_tokenizer(std::move(serialized), *end_of_document)
                             : make_json_tokenizer(std::move(serialized), "");
  }
  TRIREME_ASSERT(false, "a tokenizer of no kind");
}

std::filesystem::path tokenizer_json_path(const std::string& prefix) {
  return prefix + ".tokenizer.json";
}
std::filesystem::path tokenizer_model_path(const std::string& prefix) {
  return prefix + ".tokenizer.model";
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& prefix) {
  const std::string model = tokenizer.serialize();
  if (!model.empty()) {
    write_file_atomically(tokenizer_model_path(prefix), model);
  } else {
    std::filesystem::remove(tokenizer_model_path(prefix));
  }
  const nlohmann::ordered_json description = {{"kind", name_of(kTokenizerKinds, tokenizer.kind())},
                                              {"vocab_size", tokenizer.vocab_size()},
                                              {"end_of_document", tokenizer.end_of_document()}};
  write_file_atomically(tokenizer_json_path(prefix), description.dump(2) + "\n");
}

namespace {

struct Description {
  TokenizerKind kind = TokenizerKind::kBytes;
  int64_t vocab_size = 0;
  std::optional<int64_t> end_of_document{};
};

Description read_description(const std::filesystem::path& path, const FilePlace& place) {
  const std::string text = read_or_explain(path, kMaxDescriptionBytes, place);
  const std::string source = path.string();
  try {
    const nlohmann::json value = parse_json(text, source);
    const JsonView root(value, source);
    Description description{.kind = choose(kTokenizerKinds, "tokenizer", root.at("kind").text()),
                            .vocab_size = root.at("vocab_size").integer(1, kMaxTokens)};
    if (const auto end = root.find("end_of_document")) {
      description.end_of_document = end->integer(0, description.vocab_size - 1);
    }
    return description;
  } catch (const ConfigError& error) {
    throw ConfigError(concat(error.what(), "; make it again with `trireme data prepare`"));
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& prefix, const FilePlace& place) {
  const auto json_path = tokenizer_json_path(prefix);
  const auto [kind, vocab_size, end_of_document] = read_description(json_path, place);
  auto tokenizer =
      make_tokenizer(kind,
                     kind == TokenizerKind::kBytes
                         ? ""
                         : read_or_explain(tokenizer_model_path(prefix), kMaxModelBytes, place),
                     end_of_document);
  TRIREME_CHECK(tokenizer->vocab_size() == vocab_size, json_path.string(), " says ", vocab_size,
                " tokens, but the tokenizer has ", tokenizer->vocab_size(),
                "; make both again with `trireme data prepare`");
  TRIREME_CHECK(
      end_of_document.value_or(tokenizer->end_of_document()) == tokenizer->end_of_document(),
      json_path.string(), " says that token ", *end_of_document,
      " ends a document, but the tokenizer says ", tokenizer->end_of_document(),
      "; make both again with `trireme data prepare`");
  return tokenizer;
}

#ifndef TRIREME_HAVE_TOKENIZER_JSON

namespace {
constexpr const char* kLibrariesMissing =
    "tokenizer json needs PCRE2 and utf8proc, which this build lacks: install libpcre2-dev and "
    "libutf8proc-dev and build again, or use --tokenizer bpe or bytes";
}

bool json_tokenizer_available() { return false; }
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string, std::string_view) {
  throw ConfigError(kLibrariesMissing);
}
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string, int64_t) {
  throw ConfigError(kLibrariesMissing);
}
std::string spelled_end_of_document(std::string_view, int64_t) {
  throw ConfigError(kLibrariesMissing);
}

#else

namespace {

constexpr const char* kSource = "tokenizer.json";

// What a tokenizer.json of either model has in common.
class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(std::string text, std::vector<AddedToken> added, int32_t end_of_document)
      : text_(std::move(text)), added_(std::move(added)), end_of_document_(end_of_document) {}

  TokenizerKind kind() const override { return TokenizerKind::kJson; }
  int32_t end_of_document() const override { return end_of_document_; }
  std::optional<int32_t> added_token(std::string_view content) const override {
    const auto found = std::ranges::find(added_, content, &AddedToken::content);
    return found == added_.end() ? std::nullopt : std::optional(static_cast<int32_t>(found->id));
  }
  std::string serialize() const override { return text_; }

 private:
  std::string text_;
  std::vector<AddedToken> added_;
  int32_t end_of_document_;
};

class JsonBpe : public JsonTokenizer {
 public:
  JsonBpe(std::string text, TokenizerFile file, int32_t end_of_document)
      : JsonTokenizer(std::move(text), file.added, end_of_document),
        bpe_(std::move(file), end_of_document, kSource) {}

  int64_t vocab_size() const override { return bpe_.vocab_size(); }
  std::vector<int32_t> encode(std::string_view text) const override { return bpe_.encode(text); }
  std::string decode(std::span<const int32_t> tokens) const override { return bpe_.decode(tokens); }

 private:
  ByteLevelBpe bpe_;
};

class JsonWordPiece : public JsonTokenizer {
 public:
  JsonWordPiece(std::string text, WordPieceFile file, int32_t end_of_document)
      : JsonTokenizer(std::move(text), file.table.added, end_of_document),
        words_(std::move(file)) {}

  int64_t vocab_size() const override { return words_.vocab_size(); }
  std::optional<int32_t> unknown_token() const override { return words_.unknown_token(); }
  std::vector<int32_t> encode(std::string_view text) const override { return words_.encode(text); }
  std::string decode(std::span<const int32_t> tokens) const override {
    return words_.decode(tokens);
  }

 private:
  WordPiece words_;
};

const AddedToken& added_token(std::span<const AddedToken> added, int64_t id) {
  const auto found = std::ranges::find(added, id, &AddedToken::id);
  TRIREME_CHECK(found != added.end(), kSource, ": token ", id,
                ", which is to end documents, is not among its ", added.size(),
                " added tokens; make both again with `trireme data prepare`");
  return *found;
}

// end_of: the token that ends a document, among the added ones
std::unique_ptr<Tokenizer> make_from_json(
    std::string text, const std::function<int32_t(std::span<const AddedToken>)>& end_of) {
  const nlohmann::json value = parse_tokenizer_json(text, kSource);
  const std::string source = kSource;
  const JsonView root(value, source);
  if (is_word_piece(root)) {
    WordPieceFile file = read_word_piece(root);
    const int32_t end = end_of(file.table.added);
    return std::make_unique<JsonWordPiece>(std::move(text), std::move(file), end);
  }
  TokenizerFile file = read_tokenizer_file(root);
  const int32_t end = end_of(file.added);
  return std::make_unique<JsonBpe>(std::move(text), std::move(file), end);
}

}  // namespace

bool json_tokenizer_available() { return true; }

std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, std::string_view end_of_document) {
  return make_from_json(std::move(file), [&](std::span<const AddedToken> added) {
    return find_end_of_document(added, end_of_document, kSource);
  });
}

std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, int64_t end_of_document) {
  return make_from_json(std::move(file), [&](std::span<const AddedToken> added) {
    return added_token(added, end_of_document).id;
  });
}

std::string spelled_end_of_document(std::string_view file, int64_t end_of_document) {
  const nlohmann::json value = parse_tokenizer_json(file, kSource);
  const std::string source = kSource;
  const JsonView root(value, source);
  return added_token(is_word_piece(root) ? read_word_piece(root).table.added
                                         : read_tokenizer_file(root).added,
                     end_of_document)
      .content;
}

#endif

}  // namespace trireme::dataset
