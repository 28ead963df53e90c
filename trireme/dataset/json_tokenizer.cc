#include "trireme/dataset/json_tokenizer.h"

#include <algorithm>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include "trireme/dataset/byte_level/byte_level_bpe.h"
#include "trireme/dataset/byte_level/tokenizer_file.h"
#endif

namespace trireme::dataset::inline internal {
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

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(std::string text, TokenizerFile file, int32_t end_of_document)
      : text_(std::move(text)), bpe_(std::move(file), end_of_document, kSource) {}

  TokenizerKind kind() const override { return TokenizerKind::kJson; }
  int64_t vocab_size() const override { return bpe_.vocab_size(); }
  int32_t end_of_document() const override { return bpe_.end_of_document(); }
  std::string serialize() const override { return text_; }
  std::vector<int32_t> encode(std::string_view text) const override { return bpe_.encode(text); }
  std::string decode(std::span<const int32_t> tokens) const override { return bpe_.decode(tokens); }

 private:
  std::string text_;
  ByteLevelBpe bpe_;
};

const AddedToken& added_token(const TokenizerFile& file, int64_t id) {
  const auto found = std::ranges::find(file.added, id, &AddedToken::id);
  TRIREME_CHECK(found != file.added.end(), kSource, ": token ", id,
                ", which is to end documents, is not among its ", file.added.size(),
                " added tokens; make both again with `trireme data prepare`");
  return *found;
}

}  // namespace

bool json_tokenizer_available() { return true; }

std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, std::string_view end_of_document) {
  TokenizerFile read = read_tokenizer_file(file, kSource);
  const int32_t end = find_end_of_document(read, end_of_document, kSource);
  return std::make_unique<JsonTokenizer>(std::move(file), std::move(read), end);
}

std::unique_ptr<Tokenizer> make_json_tokenizer(std::string file, int64_t end_of_document) {
  TokenizerFile read = read_tokenizer_file(file, kSource);
  const int32_t end = added_token(read, end_of_document).id;
  return std::make_unique<JsonTokenizer>(std::move(file), std::move(read), end);
}

std::string spelled_end_of_document(std::string_view file, int64_t end_of_document) {
  return added_token(read_tokenizer_file(file, kSource), end_of_document).content;
}

#endif

}  // namespace trireme::dataset::inline internal
