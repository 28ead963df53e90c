#include "trireme/model/llama/expert_keys.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model {
namespace {

constexpr double kUsualCoefficient = 0.001;  // what transformers assumes without the key

// model.balance_loss of router_aux_loss_coef 1.
double balance_scale(const ModelConfig& config) {
  const auto k = static_cast<double>(config.sparse.experts_per_token);
  return k / static_cast<double>(std::max<int64_t>(1, num_sparse_blocks(config)));
}

HuggingFaceKey coefficient_key() {
  HuggingFaceKey key =
      mapped("router_aux_loss_coef", &ExpertConfig::balance_loss, always(kUsualCoefficient));
  key.value = [](const ModelConfig& config) -> HuggingFaceValue {
    const double loss = config.sparse.balance_loss;
    return loss > 0 ? loss / balance_scale(config) : kUsualCoefficient;
  };
  key.is_compared = false;
  key.is_kept = [](const ModelConfig& config) { return config.sparse.balance_loss == 0; };
  return key;
}

void take_balance_loss(const JsonView& is_on, HuggingFaceModel& model) {
  ExpertConfig& sparse = model.config.sparse;
  const double coefficient = std::exchange(sparse.balance_loss, 0.0);
  if (!is_on.boolean()) {
    if (coefficient > 0)
      model.notes.push_back(
          "output_router_logits is false, so model.balance_loss is 0: transformers trains without "
          "that loss; --model.balance_loss=0.001 adds it");
    return;
  }
  sparse.balance_loss = coefficient * balance_scale(model.config);
  model.notes.push_back(concat("router_aux_loss_coef ", coefficient, " is model.balance_loss ",
                               sparse.balance_loss, ": ", sparse.experts_per_token,
                               " experts a token over ", num_sparse_blocks(model.config),
                               " sparse layers, whose losses are added here"));
}

}  // namespace

HuggingFaceKey expert_width_key(std::string name) {
  HuggingFaceKey key = mapped(std::move(name), &ExpertConfig::expert_width);
  key.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.expert_width(); };
  return key;
}

HuggingFaceKey dense_blocks_key() {
  return {.name = "mlp_only_layers",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            std::vector<int64_t> dense;
            for (int64_t layer = 0; layer < config.sparse.dense_layers; ++layer) {
              dense.push_back(layer);
            }
            return dense;
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                model.config.sparse.dense_layers = std::ssize(found.elements());
              },
          .missing = always(std::vector<int64_t>())};
}

std::vector<HuggingFaceKey> balance_keys() {
  HuggingFaceKey is_on{.name = "output_router_logits",
                       .value = [](const ModelConfig& config) -> HuggingFaceValue {
                         return config.sparse.balance_loss > 0;
                       },
                       .take = take_balance_loss,
                       .missing = always(false),
                       .is_compared = false};
  return {coefficient_key(), std::move(is_on)};
}

namespace {

constexpr int64_t kQwenWindow = 4096;
constexpr int64_t kQwenFullLayers = 28;

void require_no_effect(const JsonView& window, const ModelConfig& config) {
  if (window.value().is_null() || window.integer(0) >= config.sequence_length) return;
  window.fail(concat("null, or at least max_position_embeddings = ", config.sequence_length,
                     ": attention here has no window; lower max_position_embeddings to use the "
                     "model for shorter sequences"));
}

// nullopt: missing or null.
std::optional<JsonView> value_at(const JsonView& root, std::string_view key) {
  auto found = root.find(key);
  if (found && found->value().is_null()) return std::nullopt;
  return found;
}

// The file's window where it is on, even if it does not say how long.
bool has_window(const JsonView& root) {
  const auto use = value_at(root, "use_sliding_window");
  if (!use || !use->boolean()) return false;
  const auto window = root.find("sliding_window");
  return !window || !window->value().is_null();
}

void require_no_effect_of_window(const JsonView& root, const ModelConfig& config) {
  if (const auto window = value_at(root, "sliding_window"))
    return require_no_effect(*window, config);
  if (kQwenWindow < config.sequence_length)
    root.at("use_sliding_window")
        .fail(concat("false, or sliding_window of at least max_position_embeddings = ",
                     config.sequence_length, ": without the key it is ", kQwenWindow,
                     ", and attention here has no window"));
}

}  // namespace

HuggingFaceKey window_key(HuggingFaceValue missing) {
  return {.name = "sliding_window",
          .take = [](const JsonView& found,
                     HuggingFaceModel& model) { require_no_effect(found, model.config); },
          .missing = always(std::move(missing)),
          .null = always(nullptr),
          .is_written = false};
}

HuggingFaceKey layer_types_key() {
  return {.name = "layer_types",
          .take =
              [](const JsonView& found, HuggingFaceModel& /*model*/) {
                if (found.value().is_null()) return;
                for (const JsonView& type : found.elements()) {
                  if (type.text() != "full_attention") type.fail("\"full_attention\"");
                }
              },
          .missing = always(nullptr),
          .is_written = false};
}

std::vector<HuggingFaceKey> qwen_window_keys() {
  return {ignored("use_sliding_window"), ignored("sliding_window"), ignored("max_window_layers"),
          ignored("layer_types")};
}

void check_qwen_window(const JsonView& root, const ModelConfig& config) {
  const bool is_on = has_window(root);
  if (const auto types = value_at(root, "layer_types")) {
    for (const JsonView& type : types->elements()) {
      if (type.text() == "full_attention") continue;
      if (type.text() != "sliding_attention" || !is_on) type.fail("\"full_attention\"");
      require_no_effect_of_window(root, config);
    }
    return;
  }
  const auto first = value_at(root, "max_window_layers");
  const int64_t num_full = first ? first->integer(0) : kQwenFullLayers;
  if (is_on && num_full < config.layers) require_no_effect_of_window(root, config);
}

void check_qwen_moe_window(const JsonView& root, const ModelConfig& config) {
  if (has_window(root)) require_no_effect_of_window(root, config);
}

}  // namespace trireme::model
