// JSON by itself, configs in TOML, a run's state, metrics, and tokenizers.
#include <optional>
#include <span>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "tests/train/language_config.h"
#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/csv_source.h"
#include "trireme/dataset/json_tokenizer.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/hugging_face_reader.h"
#include "trireme/train/callbacks/callback_state.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/parallel/memory_check.h"
#include "trireme/train/state.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

// The bounded parser accepts the texts that the plain parser accepts, and no others.
class Json : public Format {
 public:
  std::string name() const override { return "json"; }

  void write(Random& random) override {
    const ordered_json valid = {{"a", {1, 2.5, -3, "text", nullptr, true}},
                                {"b", {{"c", {{"d", ordered_json::array()}}}}},
                                {"e\u00e9", "\u00fc\n\t\"\\"}};
    text_ = damaged_json(valid, static_cast<int>(random.below(3)) - 1, random);
  }

  void read() override {
    nlohmann::json value;
    const bool taken = expect_refusal_or_sense([&] { value = parse_json(text_, "text"); });
    if (!taken) return;
    require(value == nlohmann::json::parse(text_), "a value that differs from the plain parser's");
    require(parse_json(value.dump(), "text") == value, "does not read what it wrote");
    const std::string source = "text";
    expect_refusal_or_sense([&] {
      for (const auto& [key, member] : JsonView(value, source).members()) member.integers(-1, 5);
    });
  }

 private:
  std::string text_;
};

// transformers' config.json of several classes. One that is taken is written and read again as the
// same model.
class ModelJson : public Format {
 public:
  std::string name() const override { return "model-json"; }

  void write(Random& random) override {
    model::ModelConfig config{.layers = 3, .width = 8, .heads = 2, .kv_heads = 2, .vocab_size = 11};
    const uint64_t kind = random.below(5);
    if (kind == 1) config.family = "gpt2";
    if (kind == 2) config.attention.attention_bias = true;
    if (kind == 3) config.family = "mixtral";
    if (kind == 3 || kind == 4) config.sparse.experts = 4;
    if (kind == 4) config.attention.qk_norm = true;
    text_ = damaged_json(
        ordered_json::parse(model::hugging_face_config(config, at::kFloat, std::nullopt)),
        static_cast<int>(random.below(3)) - 1, random);
  }

  void read() override {
    model::HuggingFaceModel found;
    const auto parse = [&](const std::string& text) {
      found = model::parse_hugging_face_config(text, "config.json");
      model::validate(found.config);
    };
    if (!expect_refusal_or_sense([&] { parse(text_); })) return;
    // The import compares sizes with the tensors that there are.
    if (found.config.layers > 100 || found.config.sparse.experts > 100) return;
    const std::string again = model::hugging_face_config(found.config, at::kFloat, std::nullopt);
    parse(again);
    require(model::hugging_face_config(found.config, at::kFloat, std::nullopt) == again,
            "does not read what it wrote");
  }

 private:
  std::string text_;
};

class Toml : public Format {
 public:
  std::string name() const override { return "toml"; }

  void write(Random& random) override {
    text_ = train::to_toml(train::language_config());
    num_ranks_ = 1 + static_cast<int>(random.below(8));
    damage_text(text_, random);
    overrides_.clear();
    if (random.one_in(3)) {
      train::RunConfig defaults = train::language_config();
      std::vector<train::Override> all = train::settings(defaults);
      train::Override chosen = random.pick(all);
      damage_text(chosen.second, random);
      overrides_.push_back(chosen);
    }
  }

  void read() override {
    train::RunConfig config = train::language_config();
    const bool parsed = expect_refusal_or_sense(
        [&] { config = train::parse_config(text_, "run.toml", overrides_); });
    if (!parsed) return;
    const std::string written = train::to_toml(config);
    const auto again = train::parse_config(written, "again.toml");
    require(train::to_toml(again) == written, "a config does not read back as it was written");
    expect_refusal_or_sense([&] {
      train::resolve(config, num_ranks_);
      if (train::model_of(config).vocab_size == 0) train::model_of(config).vocab_size = 257;
      train::check_memory(config, num_ranks_, int64_t{1} << 30);
      train::check_layout(config);
    });
  }

 private:
  std::string text_;
  std::vector<train::Override> overrides_;
  int num_ranks_ = 1;
};

class State : public Format {
 public:
  static constexpr const char* kCallback = R"({"best": 1.5, "num_worse": 2})";

  std::string name() const override { return "state"; }

  void write(Random& random) override {
    const train::RunState state{.step = 7,
                                .next_sample = 112,
                                .optimizer_steps = 7,
                                .config = train::to_toml(train::language_config()),
                                .callbacks = {{"early_stop", kCallback}}};
    auto value = ordered_json::parse(train::to_json(state));
    if (random.one_in(3)) {
      value["callbacks"]["early_stop"] = damaged_json(ordered_json::parse(kCallback), -1, random);
    }
    if (random.one_in(3)) damage_text(value["config"].get_ref<std::string&>(), random);
    text_ = random.one_in(4) ? value.dump(-1, ' ', false, ordered_json::error_handler_t::replace)
                             : damaged_json(value, -1, random);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const train::RunState state = train::parse_state(text_, "step-7");
      train::parse_config(state.config, "step-7");
      require(train::parse_state(train::to_json(state), "again").step == state.step,
              "a state does not read back as it was written");
      for (const auto& [name, callback] : state.callbacks) {
        const auto numbers = train::read_state(callback, name, {"best", "num_worse"});
        require(train::count_in(numbers, "num_worse", name) >= 0, "a count below 0");
      }
    });
  }

 private:
  std::string text_;
};

class Metrics : public Format {
 public:
  explicit Metrics(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "metrics"; }

  void write(Random& random) override {
    std::string text;
    for (int64_t step = 1; step <= 5; ++step) {
      const std::string line = train::to_json({.step = step, .loss = 2.5});
      text += random.one_in(5) ? damaged_json(ordered_json::parse(line), -1, random) : line;
      text += "\n";
    }
    if (random.one_in(2)) damage_text(text, random);
    last_step_ = static_cast<int64_t>(random.below(8));
    std::filesystem::remove_all(folder_);
    put_file(folder_ / "metrics.jsonl", text);
  }

  void read() override {
    expect_refusal_or_sense([&] { train::MetricsWriter(folder_, last_step_); });
  }

 private:
  std::filesystem::path folder_;
  int64_t last_step_ = 0;
};

class Csv : public Format {
 public:
  explicit Csv(std::filesystem::path folder) : path_(std::move(folder) / "table.csv") {}
  std::string name() const override { return "csv"; }

  void write(Random& random) override {
    text_ = "a,\"b, quoted\",y\n";
    const auto rows = random.below(6);
    for (uint64_t row = 0; row < rows; ++row) {
      text_ +=
          concat(random.below(1000), random.one_in(5) ? "e400" : "", ",",
                 random.one_in(3) ? "\"a \"\"cell\"\"\"" : "red", ",", random.below(3), "\r\n");
    }
    put_file(path_.parent_path() / "whole.csv", "a,\"b, quoted\",y\n1,red,0\n2,blue,1\n3,red,2\n");
    if (!random.one_in(8)) damage_text(text_, random);
    put_file(path_, text_);
    is_class_ = random.one_in(2);
  }

  void read() override {
    const dataset::CsvOptions options{.target = "y", .is_class = is_class_};
    expect_refusal_or_sense([&] { use(dataset::CsvSource(path_, options)); });
    const dataset::CsvSource whole(path_.parent_path() / "whole.csv", options);
    expect_refusal_or_sense([&] { use(dataset::CsvSource(path_, options, &whole)); });
  }

 private:
  void use(const dataset::CsvSource& source) const {
    require(source.size() >= 1, "a table without rows");
    for (int64_t row = 0; row < source.size(); ++row) {
      const dataset::NamedTensors sample = source.get(row, std::nullopt);
      const at::Tensor x = dataset::find_tensor(sample, "x");
      require(x.isfinite().all().item<bool>(), "a number that is not finite");
      if (!is_class_) continue;
      const auto label = dataset::find_tensor(sample, "y").item<int64_t>();
      require(label >= 0 && label < source.num_classes(), "a class that is not among the classes");
    }
  }

  std::filesystem::path path_;
  std::string text_;
  bool is_class_ = true;
};

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

void use_tokenizer(const dataset::Tokenizer& tokenizer, bool is_exact) {
  const std::string text("def \xe2\x96\x81 value\0 12\xff  \t\t self.other\n\n", 35);
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  for (const int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.vocab_size(), "a token outside the vocabulary");
  }
  const std::string decoded = tokenizer.decode(tokens);
  require(!is_exact || decoded == text, "decode(encode(text)) is another text");
  const int32_t end = tokenizer.end_of_document();
  require(end >= 0 && end < tokenizer.vocab_size(), "the end of a document is no token");
  require(tokenizer.decode({&end, 1}).empty(), "the end of a document has a text");
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
    expect_refusal_or_sense([&] { use_tokenizer(*dataset::load_tokenizer(prefix_), false); });
  }

 private:
  std::string prefix_;
  ordered_json valid_;
  int num_tokens_ = 0;
};

}  // namespace

void add_text_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Json>());
  formats.push_back(std::make_unique<ModelJson>());
  formats.push_back(std::make_unique<Toml>());
  formats.push_back(std::make_unique<State>());
  formats.push_back(std::make_unique<Metrics>(folder / "metrics"));
  formats.push_back(std::make_unique<Csv>(folder / "csv"));
  formats.push_back(std::make_unique<Tokenizer>(folder / "bytes", false));
  if (dataset::bpe_available()) {
    formats.push_back(std::make_unique<Tokenizer>(folder / "bpe", true));
  }
  if (dataset::json_tokenizer_available()) {
    formats.push_back(std::make_unique<TokenizerJson>(folder / "json"));
  }
}

}  // namespace trireme::hostile
