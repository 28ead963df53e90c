#include "trireme/model/keys/hugging_face_window.h"

#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model {
namespace {

constexpr int64_t kUsualWindow = 4096;  // what Qwen and Gemma assume without the key
constexpr int64_t kQwenFullLayers = 28;
constexpr int64_t kGptOssWindow = 128;
constexpr int64_t kAlternating = 2;  // of so many layers the last one is another
constexpr int64_t kSmolLm3Interval = 4;
constexpr int64_t kGemma3Pattern = 6;
constexpr int64_t kOlmo3Pattern = 4;
constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

bool has_window(const ModelConfig& config) { return config.attention.window > 0; }

// `window` on the layers with a w among the model's letters.
void set_window(ModelConfig& config, int64_t window, std::string layers) {
  AttentionConfig& attention = config.attention;
  // One as long as a sequence stays too: a run may have longer ones.
  const bool is_on = window > 0 && layers.find('w') != layers.npos;
  attention.window = is_on ? window : 0;
  const bool is_everywhere = layers.find('f') == layers.npos;
  attention.window_layers = !is_on || is_everywhere ? "w" : std::move(layers);
}

// The letters of all layers, and not only of their repetition.
std::string letters_of(const ModelConfig& config) {
  std::string letters;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    letters += config.attention.window_of(layer) > 0 ? 'w' : 'f';
  }
  return letters;
}

HuggingFaceValue types_of_layers(const ModelConfig& config) {
  std::vector<std::string> types;
  for (const char letter : letters_of(config)) {
    types.emplace_back(letter == 'w' ? kSliding : kFull);
  }
  return types;
}

HuggingFaceValue length_of(const ModelConfig& config) {
  if (has_window(config)) return config.attention.window;
  return nullptr;
}

// Read at the end, from the whole file.
HuggingFaceKey read_at_the_end(std::string name, HuggingFaceKey::Value value) {
  return {.name = std::move(name),
          .value = std::move(value),
          .take = [](const JsonView& /*found*/, HuggingFaceModel& /*model*/) {},
          .missing = always(nullptr),
          .is_compared = false};
}

HuggingFaceKey written_with_window(std::string name, HuggingFaceKey::Value value) {
  HuggingFaceKey key = read_at_the_end(std::move(name), std::move(value));
  key.is_left_out = [](const ModelConfig& config) { return !has_window(config); };
  return key;
}

// nullopt: missing or null.
std::optional<JsonView> value_at(const JsonView& root, std::string_view key) {
  auto found = root.find(key);
  if (found && found->value().is_null()) return std::nullopt;
  return found;
}

// The file's window where it is on; 0: it is not.
int64_t qwen_window(const JsonView& root) {
  const auto use = value_at(root, "use_sliding_window");
  if (!use || !use->boolean()) return 0;
  const auto window = root.find("sliding_window");
  if (!window) return kUsualWindow;
  return window->value().is_null() ? 0 : window->integer(1);
}

// The letters of layer_types. is_on: whether layers may slide.
std::string letters_of_types(const JsonView& types, const ModelConfig& config, bool is_on) {
  std::string letters;
  for (const JsonView& type : types.elements()) {
    const bool slides = type.text() == kSliding && is_on;
    if (!slides && type.text() != kFull) {
      type.fail(is_on ? concat('"', kFull, "\" or \"", kSliding, '"') : concat('"', kFull, '"'));
    }
    letters += slides ? 'w' : 'f';
  }
  if (std::ssize(letters) != config.layers)
    types.fail(concat("one for each of ", config.layers, " layers"));
  return letters;
}

// max_window_layers.
int64_t qwen_border(const JsonView& root) {
  const auto border = value_at(root, "max_window_layers");
  return border ? border->integer(0) : kQwenFullLayers;
}

// The letters of all layers.
std::string qwen_layers(const JsonView& root, const ModelConfig& config, bool is_on) {
  if (const auto types = value_at(root, "layer_types"))
    return letters_of_types(*types, config, is_on);
  const int64_t full = qwen_border(root);
  std::string letters;
  for (int64_t layer = 0; layer < config.layers; ++layer) letters += layer < full ? 'f' : 'w';
  return letters;
}

// The letters of all layers, of which the last of each `pattern` has `last`, and the others
// `plain`.
std::string letters_by(int64_t pattern, char plain, char last, const ModelConfig& config) {
  std::string letters;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    letters += (layer + 1) % pattern == 0 ? last : plain;
  }
  return letters;
}

// The letters of layer_types; without it, of each `pattern` layers the last has full attention.
std::string alternating_layers(const JsonView& root, const ModelConfig& config, int64_t pattern) {
  const auto types = value_at(root, "layer_types");
  return types ? letters_of_types(*types, config, /*is_on=*/true)
               : letters_by(pattern, 'w', 'f', config);
}

void take_gemma_window(const JsonView& root, ModelConfig& config, int64_t pattern) {
  const auto window = root.find("sliding_window");
  std::string letters = alternating_layers(root, config, pattern);
  set_window(config, window ? window->integer(1, kMaxSequence) : kUsualWindow, std::move(letters));
}

// r or n for each layer.
std::string rotary_layers(const JsonView& root, const ModelConfig& config) {
  const auto listed = value_at(root, "no_rope_layers");
  if (!listed) {
    const auto interval = value_at(root, "no_rope_layer_interval");
    return letters_by(interval ? interval->integer(1) : kSmolLm3Interval, 'r', 'n', config);
  }
  std::string letters;
  for (const JsonView& layer : listed->elements()) {
    letters += layer.integer(0, 1) == 1 ? 'r' : 'n';
  }
  if (std::ssize(letters) < config.layers)
    listed->fail(concat("a 1 or 0 for each of ", config.layers, " layers"));
  letters.resize(static_cast<size_t>(config.layers));
  return letters;
}

HuggingFaceValue turns_of_layers(const ModelConfig& config) {
  std::vector<int64_t> turns;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    turns.push_back(config.rope.turns(layer) ? 1 : 0);
  }
  return turns;
}

}  // namespace

HuggingFaceKey window_key(HuggingFaceValue missing) {
  return {.name = "sliding_window",
          .value = length_of,
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                set_window(model.config, found.value().is_null() ? 0 : found.integer(1), "w");
              },
          .missing = always(std::move(missing)),
          .null = always(nullptr),
          .is_compared = false};
}

HuggingFaceKey no_window_key() {
  return {.name = "sliding_window",
          .value = length_of,
          .missing = always(nullptr),
          .is_written = false};
}

HuggingFaceKey layer_types_key() {
  return {.name = "layer_types",
          .take =
              [](const JsonView& found, HuggingFaceModel& /*model*/) {
                if (found.value().is_null()) return;
                for (const JsonView& type : found.elements()) {
                  if (type.text() != kFull) type.fail(concat('"', kFull, '"'));
                }
              },
          .missing = always(nullptr),
          .is_written = false};
}

std::vector<HuggingFaceKey> qwen_window_keys() {
  return {written_with_window("use_sliding_window", always(true)),
          written_with_window("sliding_window", length_of), ignored("max_window_layers"),
          written_with_window("layer_types", types_of_layers)};
}

void take_qwen_window(const JsonView& root, ModelConfig& config) {
  const int64_t window = qwen_window(root);
  set_window(config, window, qwen_layers(root, config, window > 0));
}

void take_qwen_moe_window(const JsonView& root, ModelConfig& config) {
  set_window(config, qwen_window(root), "w");
}

void take_qwen2_moe_window(const JsonView& root, ModelConfig& config) {
  const int64_t window = qwen_window(root);
  std::string letters;
  if (const auto types = value_at(root, "layer_types")) {
    letters = letters_of_types(*types, config, window > 0);
  } else {
    const int64_t border = qwen_border(root);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      letters += layer % 2 == 0 && layer < border ? 'w' : 'f';
    }
  }
  set_window(config, window, std::move(letters));
}

std::vector<HuggingFaceKey> gemma_window_keys() {
  // transformers wants a number even where no layer slides.
  const auto length = [](const ModelConfig& config) -> HuggingFaceValue {
    return has_window(config) ? config.attention.window : config.sequence_length;
  };
  return {read_at_the_end("sliding_window", length),
          read_at_the_end("layer_types", types_of_layers)};
}

void take_gemma2_window(const JsonView& root, ModelConfig& config) {
  take_gemma_window(root, config, kAlternating);
}

std::vector<HuggingFaceKey> rotary_layers_keys() {
  return {read_at_the_end("no_rope_layers", turns_of_layers), ignored("no_rope_layer_interval")};
}

void take_smollm3_layers(const JsonView& root, ModelConfig& config) {
  std::string letters = rotary_layers(root, config);
  const auto use = value_at(root, "use_sliding_window");
  const auto window = value_at(root, "sliding_window");
  const bool is_on = use && use->boolean() && window;
  std::string windows;
  if (const auto types = value_at(root, "layer_types")) {
    windows = letters_of_types(*types, config, is_on);
  } else {
    for (const char letter : letters) windows += letter == 'n' ? 'w' : 'f';
  }
  set_window(config, is_on ? window->integer(1, kMaxSequence) : 0, std::move(windows));
  const bool is_everywhere = letters.find('n') == letters.npos;
  config.rope.rope_layers = is_everywhere ? "r" : std::move(letters);
}

void take_gpt_oss_window(const JsonView& root, ModelConfig& config) {
  std::string letters = alternating_layers(root, config, kAlternating);
  const auto window = root.find("sliding_window");
  const bool is_used = letters.find('w') != letters.npos;
  if (!is_used && window && window->value().is_null()) return;
  set_window(config, window ? window->integer(1, kMaxSequence) : kGptOssWindow, std::move(letters));
}

void take_olmo3_window(const JsonView& root, ModelConfig& config) {
  take_gemma_window(root, config, kOlmo3Pattern);
}

void take_gemma3_window(const JsonView& root, ModelConfig& config) {
  const auto pattern = root.find("sliding_window_pattern");
  take_gemma_window(root, config, pattern ? pattern->integer(1) : kGemma3Pattern);
}

}  // namespace trireme::model
