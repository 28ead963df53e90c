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

HuggingFaceKey shared_width_key(std::string name, int64_t missing_width) {
  return {
      .name = std::move(name),
      .value = [](const ModelConfig& config) -> HuggingFaceValue { return config.shared_width(); },
      .take =
          [](const JsonView& found, HuggingFaceModel& model) {
            const int64_t width = found.integer(1, kMaxFfnWidth);
            const int64_t of_one = model.config.expert_width();
            if (width % of_one != 0)
              found.fail(concat("a multiple of the experts' width, ", of_one));
            model.config.sparse.shared_experts = width / of_one;
          },
      .missing = always(missing_width)};
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

}  // namespace trireme::model
