// JSON by itself, configs in TOML, a run's state, metrics, and tokenizers.
#include <optional>
#include <span>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "tests/train/language_config.h"
#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/dataset/csv_source.h"
#include "trireme/dataset/rows/csv_rows.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/vision/trained_images.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/memory_check.h"
#include "trireme/train/state/run_state.h"

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
    const uint64_t kind = random.below(14);
    if (kind == 1) config.family = "gpt2";
    if (kind == 2) config.attention.attention_bias = true;
    if (kind == 3) config.family = "mixtral";
    if (kind == 3 || kind == 4 || kind == 9) config.sparse.experts = 4;
    if (kind == 4 || kind == 6) config.attention.qk_norm = true;
    if (kind == 5 || kind == 6) config.family = "gemma";
    if (kind == 5 || kind == 6) config.attention.window = 4;
    if (kind == 6) config.rope.rope_local_base = 1e4;
    if (kind == 7) config.family = "bert";
    if (kind == 8) config.rope.rope_layers = "rrn";
    if (kind == 9) {
      config.attention.attention_bias = config.attention.attention_output_bias = true;
      config.attention.attention_sinks = config.sparse.expert_bias = true;
      config.sparse.swiglu_limit = 7;
    }
    if (kind == 10) {
      config.vision = {.layers = 2, .width = 8, .heads = 2, .ffn_width = 16};
      config.vision.image_size = config.vision.patch_size = 4;
      config.vision.image_token = 3;
    }
    if (kind == 11) {
      config.branch_norms = model::BranchNorms::kAfter;
      config.attention.qk_norm = true;
      config.attention.qk_norm_over = model::QkNormOver::kAll;
    }
    if (kind == 12) config.sparse = {.experts = 4, .shared_experts = 2, .shared_gate = true};
    if (kind == 13) {
      config.branch_norms = model::BranchNorms::kBoth;
      config.rope.rotary_share = 0.5;
    }
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
    expect_refusal_or_sense([&] {
      const std::vector<std::string> paths = {path_.string()};
      dataset::open_csv_rows(paths, whole)->read([](const dataset::Row& row) {
        const at::Tensor x = dataset::find_tensor(row.sample, "x");
        require(x.numel() == 1 && x.isfinite().all().item<bool>(), "a row of other numbers");
      });
    });
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

// What a run says of the images that it was trained on.
class ImagesJson : public Format {
 public:
  explicit ImagesJson(const std::filesystem::path& folder) : path_(folder / "images.json") {}
  std::string name() const override { return "images-json"; }

  void write(Random& random) override {
    const ordered_json valid = {
        {"channels", 3}, {"height", 8}, {"width", 9}, {"classes", {"cat", "dog", "\u00fc"}}};
    put_file(path_, damaged_json(valid, static_cast<int>(random.below(3)) - 1, random));
  }
  void read() override {
    expect_refusal_or_sense([&] {
      const tasks::TrainedImages images = tasks::read_trained_images(path_);
      require(images.shape.num_values() > 0 && !images.classes.empty(), "no images");
    });
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

void add_text_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Json>());
  formats.push_back(std::make_unique<ModelJson>());
  formats.push_back(std::make_unique<Toml>());
  formats.push_back(std::make_unique<State>());
  formats.push_back(std::make_unique<Metrics>(folder / "metrics"));
  formats.push_back(std::make_unique<Csv>(folder / "csv"));
  formats.push_back(std::make_unique<ImagesJson>(folder));
}

}  // namespace trireme::hostile
