#include "trireme/dataset/tokenizer.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/dataset/bpe.h"

namespace trireme::dataset {
namespace {

class BytesTokenizer : public Tokenizer {
 public:
  std::string kind() const override { return "bytes"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  std::string serialize() const override { return ""; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
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

std::string read_or_explain(const std::filesystem::path& path) {
  std::error_code ignored;
  TRIREME_CHECK(std::filesystem::is_regular_file(path, ignored), "tokenizer file ", path.string(),
                " does not exist: `trireme data prepare` writes it beside the token files");
  try {
    return read_file(path);
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, std::string serialized) {
  if (kind == "bytes") return make_bytes_tokenizer();
  TRIREME_CHECK(kind == "bpe", "tokenizer is \"", kind, "\", expected bytes or bpe");
  return make_bpe_tokenizer(std::move(serialized));
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
  const nlohmann::ordered_json description = {{"kind", tokenizer.kind()},
                                              {"vocab_size", tokenizer.vocab_size()},
                                              {"end_of_document", tokenizer.end_of_document()}};
  write_file_atomically(tokenizer_json_path(prefix), description.dump(2) + "\n");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& prefix) {
  const auto json_path = tokenizer_json_path(prefix);
  const auto description = nlohmann::json::parse(read_or_explain(json_path), nullptr, false);
  TRIREME_CHECK(description.is_object() && description.contains("kind") &&
                    description["kind"].is_string() && description.contains("vocab_size") &&
                    description["vocab_size"].is_number_integer(),
                json_path.string(), " is damaged: expected an object with kind and vocab_size",
                "; make it again with `trireme data prepare`");
  const auto kind = description["kind"].get<std::string>();
  auto tokenizer =
      make_tokenizer(kind, kind == "bpe" ? read_or_explain(tokenizer_model_path(prefix)) : "");
  const auto vocab_size = description["vocab_size"].get<int64_t>();
  TRIREME_CHECK(tokenizer->vocab_size() == vocab_size, json_path.string(), " says ", vocab_size,
                " tokens, but the tokenizer has ", tokenizer->vocab_size(),
                "; make both again with `trireme data prepare`");
  return tokenizer;
}

}  // namespace trireme::dataset
