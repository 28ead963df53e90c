// Tokenizers: our own, SentencePiece's and Hugging Face's.
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/dataset/word_piece/word_piece_json.h"
#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

// Protocol-buffer fields, enough to take a SentencePiece model apart and put it together.
struct ProtoField {
  uint64_t tag = 0;     // number * 8 + wire type
  std::string payload;  // without the length of a length-delimited field
};

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

std::vector<ProtoField> fields_of(std::string_view bytes) {
  std::vector<ProtoField> fields;
  while (!bytes.empty()) {
    ProtoField field{.tag = take_varint(bytes), .payload = {}};
    size_t length = 0;
    switch (field.tag & 7) {
      case 0: {
        const std::string_view before = bytes;
        take_varint(bytes);
        field.payload = before.substr(0, before.size() - bytes.size());
        break;
      }
      case 1: length = 8; break;
      case 5: length = 4; break;
      default: length = take_varint(bytes);
    }
    length = std::min(length, bytes.size());
    field.payload += bytes.substr(0, length);
    bytes.remove_prefix(length);
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string bytes_of(const std::vector<ProtoField>& fields) {
  std::string bytes;
  for (const ProtoField& field : fields) {
    bytes += varint(field.tag);
    if ((field.tag & 7) == 2) bytes += varint(field.payload.size());
    bytes += field.payload;
  }
  return bytes;
}

void damage_fields(std::string& bytes, Random& random, int depth) {
  std::vector<ProtoField> fields = fields_of(bytes);
  if (fields.empty()) return damage_bytes(bytes, random);
  const size_t at = random.below(fields.size());
  ProtoField& field = fields[at];
  switch (random.below(depth > 0 ? 10 : 7)) {
    case 0: fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: fields.push_back(ProtoField(field)); break;
    case 2: std::swap(field, fields[random.below(fields.size())]); break;
    case 3:
      field.tag = random.one_in(2) ? edge_number(random) : field.tag ^ random.below(64);
      break;
    case 4: field.payload = varint(edge_number(random)); break;
    case 5: damage_bytes(field.payload, random); break;
    case 6: {
      const ProtoField kept = field;
      fields.resize(fields.size() + random.below(500), kept);
      break;
    }
    default: damage_fields(field.payload, random, depth - 1); break;
  }
  bytes = bytes_of(fields);
}

// shows_end: the end of a document is a token of text too
void use_tokenizer(const dataset::Tokenizer& tokenizer, bool is_exact, bool shows_end = false) {
  const std::string text("def \xe2\x96\x81 value\0 12\xff  \t\t self.other\n\n", 35);
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  for (const int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.vocab_size(), "a token outside the vocabulary");
  }
  const std::string decoded = tokenizer.decode(tokens);
  require(!is_exact || decoded == text, "decode(encode(text)) is another text");
  const int32_t end = tokenizer.end_of_document();
  require(end >= 0 && end < tokenizer.vocab_size(), "the end of a document is no token");
  require(shows_end || tokenizer.decode({&end, 1}).empty(), "the end of a document has a text");
}

class Tokenizer : public Format {
 public:
  explicit Tokenizer(std::filesystem::path folder, bool bpe)
      : bpe_(bpe), prefix_((folder / "a").string()) {
    std::filesystem::create_directories(folder);
    if (!bpe) return;
    bool given = false;
    model_ = dataset::train_bpe(
        [&]() -> std::string {
          if (std::exchange(given, true)) return "";
          std::string text;
          for (int i = 0; i < 40; ++i) text += "def value(self): return 12 + self.other\n";
          return text;
        },
        290);
    vocab_size_ = dataset::make_bpe_tokenizer(model_)->vocab_size();
  }
  std::string name() const override { return bpe_ ? "sentencepiece" : "tokenizer"; }

  void write(Random& random) override {
    const ordered_json valid = {{"kind", bpe_ ? "bpe" : "bytes"},
                                {"vocab_size", bpe_ ? vocab_size_ : 257},
                                {"end_of_document", bpe_ ? 1 : 256}};
    put_file(dataset::tokenizer_json_path(prefix_),
             bpe_ ? valid.dump() : damaged_json(valid, 2, random));
    if (!bpe_) return;
    std::string model = model_;
    for (size_t count = 1 + random.below(3); count > 0; --count) {
      damage_fields(model, random, 2);
      if (random.one_in(8)) damage_bytes(model, random);
    }
    put_file(dataset::tokenizer_model_path(prefix_), model);
  }

  void read() override {
    // The model is also read by itself, because its vocabulary may differ from the description's.
    if (bpe_) {
      const std::string model = get_file(dataset::tokenizer_model_path(prefix_));
      expect_refusal_or_sense([&] { use(*dataset::make_bpe_tokenizer(model)); });
      expect_refusal_or_sense([&] { dataset::bpe_special_pieces(model); });
    }
    expect_refusal_or_sense([&] { use(*dataset::load_tokenizer(prefix_)); });
  }

 private:
  static void use(const dataset::Tokenizer& tokenizer) { use_tokenizer(tokenizer, true); }

  bool bpe_;
  std::string prefix_;
  std::string model_;
  int64_t vocab_size_ = 0;
};

// Hugging Face's tokenizer.json with one of everything that its reader takes.
class TokenizerJson : public Format {
 public:
  explicit TokenizerJson(std::filesystem::path folder) : prefix_((folder / "a").string()) {
    std::filesystem::create_directories(folder);
    ordered_json vocabulary;
    int next = 0;
    // A byte's character: itself when it is printable, otherwise one from U+0100 on.
    int other = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      const int character = printable ? byte : other++;
      std::string spelled(1, static_cast<char>(character));
      if (character >= 0x80) {
        spelled = {static_cast<char>(0xc0 | character >> 6),
                   static_cast<char>(0x80 | (character & 0x3f))};
      }
      vocabulary[spelled] = next++;
    }
    for (const char* token : {"de", "def", "\u0120s", "\u0120\u0120"}) vocabulary[token] = next++;
    ordered_json added;
    for (const char* content : {"<|endoftext|>", "self", "\n"}) {
      added.push_back({{"id", next++},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    const ordered_json split = {
        {"type", "Split"},
        {"pattern", {{"Regex", R"((?i:'s)|[^\s\p{L}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+)"}}},
        {"behavior", "Isolated"},
        {"invert", false}};
    valid_ = {{"added_tokens", added},
              {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}}},
              {"pre_tokenizer",
               {{"type", "Sequence"},
                {"pretokenizers",
                 {split,
                  {{"type", "Digits"}, {"individual_digits", true}},
                  {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model",
               {{"type", "BPE"},
                {"ignore_merges", true},
                {"vocab", vocabulary},
                {"merges", {"d e", "de f", "\u0120 s", "\u0120 \u0120"}}}}};
    num_tokens_ = next;
  }
  std::string name() const override { return "tokenizer-json"; }

  void write(Random& random) override {
    ordered_json changed = valid_;
    // Most changes of the whole fall on the vocabulary.
    ordered_json* const parts[] = {&changed["added_tokens"], &changed["pre_tokenizer"],
                                   &changed["model"]["merges"], &changed["normalizer"]};
    std::string text;
    if (random.one_in(2)) {
      ordered_json& part = *random.pick(parts);
      const std::string damaged = damaged_json(part, -1, random);
      part = "HERE";
      text = changed.dump();
      text.replace(text.find("\"HERE\""), 6, damaged);
    } else if (random.one_in(2)) {
      auto& pattern =
          changed["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].get_ref<std::string&>();
      damage_text(pattern, random);
      text = changed.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    } else {
      text = damaged_json(changed, -1, random);
    }
    put_file(dataset::tokenizer_model_path(prefix_), text);
    const ordered_json description = {
        {"kind", "json"},
        {"vocab_size", num_tokens_},
        {"end_of_document", random.one_in(4) ? random.below(300) : size_t{260}}};
    put_file(dataset::tokenizer_json_path(prefix_), description.dump());
  }

  void read() override {
    // Normal forms and added tokens may change white space, so the text need not come back.
    const std::string text = get_file(dataset::tokenizer_model_path(prefix_));
    expect_refusal_or_sense([&] { use_tokenizer(*dataset::make_json_tokenizer(text, ""), false); });
    expect_refusal_or_sense([&] { dataset::spelled_end_of_document(text, 260); });
    expect_refusal_or_sense([&] { use_tokenizer(*dataset::load_tokenizer(prefix_), false, true); });
  }

 private:
  std::string prefix_;
  ordered_json valid_;
  int num_tokens_ = 0;
};

// A tokenizer.json of BERT.
class WordPieceJson : public Format {
 public:
  WordPieceJson() : valid_(dataset::small_word_piece_json()) {
    valid_["added_tokens"].push_back({{"id", 16}, {"content", "\u00c9x"}, {"normalized", true}});
  }
  std::string name() const override { return "word-piece"; }

  void write(Random& random) override {
    ordered_json changed = valid_;
    ordered_json* const parts[] = {&changed["added_tokens"], &changed["normalizer"],
                                   &changed["model"]};
    if (random.one_in(2)) {
      text_ = damaged_json(changed, -1, random);
      return;
    }
    ordered_json& part = *random.pick(parts);
    const std::string damaged = damaged_json(part, -1, random);
    part = "HERE";
    text_ = changed.dump();
    text_.replace(text_.find("\"HERE\""), 6, damaged);
  }

  void read() override {
    expect_refusal_or_sense(
        [&] { use_tokenizer(*dataset::make_json_tokenizer(text_, ""), false, true); });
    expect_refusal_or_sense([&] { dataset::spelled_end_of_document(text_, 3); });
  }

 private:
  ordered_json valid_;
  std::string text_;
};

}  // namespace

void add_tokenizer_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Tokenizer>(folder / "bytes", false));
  if (dataset::bpe_available()) {
    formats.push_back(std::make_unique<Tokenizer>(folder / "bpe", true));
  }
  if (dataset::json_tokenizer_available()) {
    formats.push_back(std::make_unique<TokenizerJson>(folder / "json"));
    formats.push_back(std::make_unique<WordPieceJson>());
  }
}

}  // namespace trireme::hostile
