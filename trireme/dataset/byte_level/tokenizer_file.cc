#include "trireme/dataset/byte_level/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/dataset/byte_level/token_table.h"

namespace trireme::dataset {

// The reader takes what this program's encoder does in the same way as the package `tokenizers`,
// and refuses all else by its name: other tokens would train a model without anybody noticing. The
// text of an added token is taken as it is, while the vocabulary's spell bytes. Each of the 256
// bytes must have a token, so that any text has tokens. The file is not trusted: its sizes are
// bounded.

namespace {

constexpr JsonLimits kLimits{.max_bytes = size_t{256} << 20, .max_values = size_t{8} << 20};
constexpr size_t kMaxSplitSteps = 64;
constexpr size_t kShownBytes = 60;
constexpr std::string_view kInstead =
    " (a SentencePiece tokenizer is read from its tokenizer.model with --tokenizer bpe)";
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool is_null(const std::optional<JsonView>& view) { return !view || view->value().is_null(); }

// The parts of a Sequence in order, at any depth; a part that is none by itself.
void flatten(const JsonView& view, std::string_view parts_key, std::vector<JsonView>& parts) {
  if (view.at("type").text() != "Sequence") {
    parts.push_back(view);
    return;
  }
  for (const JsonView& part : view.at(parts_key).elements()) flatten(part, parts_key, parts);
}

std::vector<JsonView> parts_of(const JsonView& root, std::string_view key,
                               std::string_view parts_key) {
  std::vector<JsonView> parts;
  const auto view = root.find(key);
  if (!is_null(view)) flatten(*view, parts_key, parts);
  return parts;
}

bool read_normalizer(const JsonView& root) {
  const auto parts = parts_of(root, "normalizer", "normalizers");
  for (const JsonView& part : parts) {
    const JsonView type = part.at("type");
    if (type.text() != "NFC") type.fail(concat("NFC or Sequence", kInstead));
  }
  return !parts.empty();
}

SplitStep read_split(const JsonView& split) {
  const JsonView behavior = split.at("behavior");
  if (behavior.text() != "Isolated") behavior.fail("Isolated");
  const JsonView pattern = split.at("pattern");
  if (!pattern.find("Regex")) pattern.fail("an object with \"Regex\"");
  const JsonView regex = pattern.at("Regex");
  if (regex.text().empty()) regex.fail("a regular expression");
  return {.adds_space = false, .pattern = regex.text()};
}

// ByteLevel turns text into its alphabet, so it must be the last step.
std::vector<SplitStep> read_pre_tokenizer(const JsonView& root) {
  const auto parts = parts_of(root, "pre_tokenizer", "pretokenizers");
  if (parts.empty() || parts.back().at("type").text() != "ByteLevel") {
    root.at("pre_tokenizer").fail(concat("ByteLevel, or a Sequence that ends with it", kInstead));
  }
  if (parts.size() > kMaxSplitSteps) {
    root.at("pre_tokenizer").fail(concat("a Sequence of at most ", kMaxSplitSteps));
  }
  std::vector<SplitStep> steps;
  for (const JsonView& part : parts) {
    const JsonView type = part.at("type");
    if (type.text() == "Split") {
      steps.push_back(read_split(part));
    } else if (type.text() == "Digits") {
      steps.push_back(
          {.pattern = flag_of(part, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type.text() == "ByteLevel" && steps.size() + 1 == parts.size()) {
      steps.push_back(
          {.adds_space = flag_of(part, "add_prefix_space", true),
           .pattern = std::string(flag_of(part, "use_regex", true) ? kGpt2Pattern : "")});
    } else {
      type.fail("Split, Digits, or ByteLevel as the last");
    }
  }
  return steps;
}

void check_decoder(const JsonView& root) {
  const auto parts = parts_of(root, "decoder", "decoders");
  if (parts.size() != 1 || parts[0].at("type").text() != "ByteLevel") {
    root.at("decoder").fail(concat("ByteLevel", kInstead));
  }
}

// A member that must be null, false, 0 or empty when it is there.
void require_unused(const JsonView& model, std::string_view key) {
  const auto found = model.find(key);
  if (is_null(found)) return;
  const nlohmann::json& value = found->value();
  const bool unused = (value.is_boolean() && !value.get<bool>()) ||
                      (value.is_number() && value.get<double>() == 0) ||
                      (value.is_string() && value.get_ref<const std::string&>().empty());
  if (!unused) found->fail("null");
}

class Reader {
 public:
  explicit Reader(const JsonView& root) : root_(root), model_(root.at("model")) {
    const JsonView type = model_.at("type");
    if (type.text() != "BPE") type.fail("BPE, or WordPiece where there are no conversations");
    for (const auto key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      require_unused(model_, key);
    }
    file_.composes = read_normalizer(root_);
    file_.steps = read_pre_tokenizer(root_);
    check_decoder(root_);
    file_.ignores_merges = flag_of(model_, "ignore_merges", false);
  }

  TokenizerFile run() {
    read_tokens();
    read_merges();
    return std::move(file_);
  }

 private:
  // A name that spells no bytes stands for itself.
  void read_tokens() {
    TokenTable table = read_token_table(root_, [](const std::string& name, const JsonView& /*id*/) {
      auto bytes = spelled_bytes(name);
      return bytes ? *std::move(bytes) : name;
    });
    file_.bytes.fill(-1);
    for (const auto& [name, number] : table.vocabulary) {
      const auto bytes = spelled_bytes(name);
      if (!bytes || bytes->empty()) continue;
      file_.vocabulary.push_back(number);
      if (bytes->size() == 1) file_.bytes[static_cast<unsigned char>(bytes->front())] = number;
    }
    std::ranges::sort(file_.vocabulary);
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (file_.bytes[byte] < 0) {
        model_.at("vocab").fail(concat("a token for each byte; there is none for byte ", byte, ", ",
                                       in_quotes(spelled_byte(static_cast<uint8_t>(byte)))));
      }
    }
    file_.tokens = std::move(table.tokens);
    file_.added = std::move(table.added);
    ids_ = std::move(table.vocabulary);
  }

  void read_merges() {
    const JsonView merges = model_.at("merges");
    file_.merges.reserve(merges.value().size());
    for (const JsonView& merge : merges.elements()) {
      const auto [left, right] = pair_of(merge);
      file_.merges.push_back({.left = id_of(left, merge),
                              .right = id_of(right, merge),
                              .result = id_of(left + right, merge)});
    }
  }

  // ["a", "b"], or "a b" in files of older versions.
  static std::pair<std::string, std::string> pair_of(const JsonView& merge) {
    if (merge.value().is_array()) {
      const auto parts = merge.elements();
      if (parts.size() != 2) merge.fail("two tokens");
      return {parts[0].text(), parts[1].text()};
    }
    const std::string& text = merge.text();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      merge.fail("two tokens with a space between them");
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }

  int32_t id_of(const std::string& token, const JsonView& merge) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      merge.fail(concat("tokens of the vocabulary, which lacks ", in_quotes(token, kShownBytes)));
    }
    return found->second;
  }

  JsonView root_;
  JsonView model_;
  TokenizerFile file_;
  decltype(TokenTable::vocabulary) ids_;
};

}  // namespace

nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& source) {
  return parse_json(text, source, kLimits);
}

TokenizerFile read_tokenizer_file(const JsonView& root) { return Reader(root).run(); }

TokenizerFile read_tokenizer_file(std::string_view text, const std::string& source) {
  const nlohmann::json value = parse_tokenizer_json(text, source);
  return read_tokenizer_file(JsonView(value, source));
}

namespace {
constexpr std::string_view kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
// It has another purpose too: it ends each text of a pair.
constexpr std::string_view kEndOfBert = "[SEP]";
}  // namespace

bool is_usual_end_of_document(const TokenizerFile& file, int32_t id) {
  const auto found = std::ranges::find(file.added, id, &AddedToken::id);
  return found != file.added.end() &&
         std::ranges::find(kUsualEnds, found->content) != std::end(kUsualEnds);
}

int32_t find_end_of_document(std::span<const AddedToken> added, std::string_view name,
                             const std::string& source) {
  const auto find = [&](std::string_view content) {
    return std::ranges::find(added, content, &AddedToken::content);
  };
  if (!name.empty()) {
    const auto found = find(name);
    TRIREME_CHECK(found != added.end(), source, ": no added token is ",
                  in_quotes(name, kShownBytes), ", which is to end documents; choose one of its ",
                  added.size(), " added tokens with --end-of-document");
    return found->id;
  }
  for (const std::string_view usual : kUsualEnds) {
    if (const auto found = find(usual); found != added.end()) return found->id;
  }
  if (const auto found = find(kEndOfBert); found != added.end()) return found->id;
  throw ConfigError(concat(source, ": none of its ", added.size(),
                           " added tokens is <|endoftext|>, <|end_of_text|>, </s> or [SEP]; choose "
                           "the one that ends a document with --end-of-document"));
}

namespace {

constexpr unsigned kFirstOther = 0x100;
constexpr unsigned kNumOthers = 68;

constexpr bool spells_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The code point of each byte.
constexpr std::array<unsigned, 256> kCharacters = [] {
  std::array<unsigned, 256> characters{};
  unsigned other = kFirstOther;
  for (unsigned byte = 0; byte < 256; ++byte) {
    characters[byte] = spells_itself(byte) ? byte : other++;
  }
  return characters;
}();

// The byte of each code point below 0x144; -1 for those that spell none.
constexpr std::array<int, kFirstOther + kNumOthers> kBytes = [] {
  std::array<int, kFirstOther + kNumOthers> bytes{};
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int>(byte);
  return bytes;
}();

}  // namespace

std::string spelled_byte(uint8_t byte) {
  const unsigned character = kCharacters[byte];
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

std::optional<std::string> spelled_bytes(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      // All the alphabet's other characters have two bytes in UTF-8.
      if ((character & 0xE0) != 0xC0 || ++i == text.size()) return std::nullopt;
      character = ((character & 0x1F) << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
    }
    if (character >= kBytes.size() || kBytes[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[character]));
  }
  return bytes;
}

}  // namespace trireme::dataset
