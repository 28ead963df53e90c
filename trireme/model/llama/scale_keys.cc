#include "trireme/model/llama/scale_keys.h"

#include <cmath>
#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model {
namespace {

// A factor that a program has computed as 1 / sqrt(s) is that to a few roundings in fp64.
constexpr double kRounding = 1e-14;

void take_score_factor(const JsonView& found, HuggingFaceModel& model) {
  ModelConfig& config = model.config;
  const double factor = found.number(1 / std::sqrt(static_cast<double>(kMaxWidth)), 1);
  const double whole = std::round(1 / (factor * factor));
  if (std::abs(factor * std::sqrt(whole) - 1) > kRounding)
    found.fail("one over the square root of a whole number, such as 0.125");
  const auto scalar = static_cast<int64_t>(whole);
  config.attention.query_scalar = scalar == config.head_width() ? 0 : scalar;
}

HuggingFaceKey score_factor_key() {
  return {.name = "attention_multiplier",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            const int64_t scalar = config.attention.query_scalar;
            return 1 / std::sqrt(static_cast<double>(scalar > 0 ? scalar : config.head_width()));
          },
          .take = take_score_factor,
          .missing = always(1.0)};
}

}  // namespace

std::vector<HuggingFaceKey> scale_keys() {
  return {mapped("embedding_multiplier", &ModelConfig::embedding_scale, always(1.0)),
          mapped("residual_multiplier", &ModelConfig::residual_scale, always(1.0)),
          mapped("logits_scaling", &ModelConfig::logits_divisor, always(1.0)), score_factor_key()};
}

}  // namespace trireme::model
