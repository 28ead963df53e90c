#include "trireme/model/family/config.h"

#include <string_view>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

void check_divides(std::string_view part_key, int64_t part, std::string_view whole_key,
                   int64_t whole) {
  TRIREME_CHECK(whole % part == 0, "model.", part_key, " = ", part, " does not divide model.",
                whole_key, " = ", whole, "; expected a divisor: change one of them");
}

}  // namespace

void validate(const ModelConfig& config) {
  TRIREME_CHECK(config.family == "llama" || config.family == "gpt2", "model.family = \"",
                config.family, "\" is unknown; expected one of llama, gpt2: choose one of them");
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"layers", config.layers},       {"width", config.width},
      {"heads", config.heads},         {"kv_heads", config.kv_heads},
      {"ffn_width", config.ffn_width}, {"sequence_length", config.sequence_length}};
  for (const auto& [key, value] : sizes) {
    TRIREME_CHECK(value > 0, "model.", key, " = ", value, "; expected at least 1: set it higher");
  }
  TRIREME_CHECK(config.vocab_size >= 0, "model.vocab_size = ", config.vocab_size,
                "; expected at least 1, or 0 to take it from the data");
  TRIREME_CHECK(config.norm_epsilon > 0, "model.norm_epsilon = ", config.norm_epsilon,
                "; expected a positive number such as 1e-5");
  TRIREME_CHECK(config.dropout >= 0 && config.dropout < 1, "model.dropout = ", config.dropout,
                "; expected at least 0 (none) and below 1, such as 0.1");
  check_divides("heads", config.heads, "width", config.width);
  check_divides("kv_heads", config.kv_heads, "heads", config.heads);
  if (config.family == "llama") {
    TRIREME_CHECK(config.head_width() % 2 == 0, "model.heads = ", config.heads,
                  " makes heads of odd width ", config.head_width(),
                  "; expected an even model.width / model.heads (rotary positions turn pairs): "
                  "change one of them");
    TRIREME_CHECK(config.rope_base > 1, "model.rope_base = ", config.rope_base,
                  "; expected more than 1, such as 10000");
  } else {
    TRIREME_CHECK(config.kv_heads == config.heads, "model.kv_heads = ", config.kv_heads,
                  "; expected model.heads = ", config.heads,
                  " (gpt2 has no grouped queries): set them equal or use model.family = \"llama\"");
  }
}

int64_t num_parameters(const ModelConfig& config) {
  const int64_t D = config.width;
  const int64_t F = config.ffn_width;
  const int64_t V = config.vocab_size;
  if (config.family == "gpt2") {
    const int64_t attention = (3 * D * D + 3 * D) + (D * D + D);
    const int64_t feed_forward = (F * D + F) + (D * F + D);
    const int64_t norms = 4 * D;
    return V * D + config.sequence_length * D + config.layers * (attention + feed_forward + norms) +
           2 * D;
  }
  const int64_t kv_width = config.kv_heads * config.head_width();
  const int64_t block = 2 * D * D + 2 * D * kv_width + 3 * D * F + 2 * D;
  return (config.tied_embedding ? 1 : 2) * V * D + config.layers * block + D;
}

double flops_per_token(const ModelConfig& config) {
  const double D = static_cast<double>(config.width);
  const double F = static_cast<double>(config.ffn_width);
  const double kv_width = static_cast<double>(config.kv_heads * config.head_width());
  const bool gpt2 = config.family == "gpt2";
  const double attention = 2 * D * D + 2 * D * kv_width;
  const double feed_forward = (gpt2 ? 2 : 3) * D * F;
  const double layers = static_cast<double>(config.layers);
  const double matmul_parameters =
      layers * (attention + feed_forward) + static_cast<double>(config.vocab_size) * D;
  // Scores and their product with v: 2 * 2 * T * D forward, twice that backward.
  const double scores = 12 * layers * static_cast<double>(config.sequence_length) * D;
  return 6 * matmul_parameters + scores;
}

}  // namespace trireme::model
