#include "trireme/model/vit/vit_config.h"

#include <string>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

constexpr VitConfig kSmall16{};
constexpr VitConfig kBase16{.width = 768, .heads = 12, .ffn_width = 3072};
constexpr Choice<const VitConfig*> kPresets[] = {{"vit_s16", &kSmall16}, {"vit_b16", &kBase16}};

void check_divides(std::string_view part_key, int64_t part, std::string_view whole_key,
                   int64_t whole) {
  TRIREME_CHECK(whole % part == 0, "model.", part_key, " = ", part, " does not divide model.",
                whole_key, " = ", whole, "; expected a divisor: change one of them");
}

}  // namespace

ModelConfig VitConfig::block_config() const {
  return {.family = "vit",
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .ffn_width = ffn_width,
          .sequence_length = num_tokens(),
          .vocab_size = 0,
          .norm_epsilon = norm_epsilon,
          .dropout = dropout};
}

void validate(const VitConfig& config) {
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"image_size", config.image_size}, {"patch_size", config.patch_size},
      {"channels", config.channels},     {"layers", config.layers},
      {"width", config.width},           {"heads", config.heads},
      {"ffn_width", config.ffn_width}};
  for (const auto& [key, value] : sizes) {
    TRIREME_CHECK(value > 0, "model.", key, " = ", value, "; expected at least 1: set it higher");
  }
  TRIREME_CHECK(config.classes >= 0, "model.classes = ", config.classes,
                "; expected at least 1, or 0 to take it from the data");
  TRIREME_CHECK(config.norm_epsilon > 0, "model.norm_epsilon = ", config.norm_epsilon,
                "; expected a positive number such as 1e-12");
  TRIREME_CHECK(config.dropout >= 0 && config.dropout < 1, "model.dropout = ", config.dropout,
                "; expected at least 0 (none) and below 1, such as 0.1");
  check_divides("patch_size", config.patch_size, "image_size", config.image_size);
  check_divides("heads", config.heads, "width", config.width);
  TRIREME_CHECK(config.num_tokens() <= kMaxSequence, "model.image_size = ", config.image_size,
                " and model.patch_size = ", config.patch_size, " make ", config.num_tokens(),
                " tokens; expected at most ", kMaxSequence, ": make the patches larger");
}

VitConfig vit_preset(std::string_view name) {
  const auto* const found = find_choice(kPresets, name);
  TRIREME_CHECK(found != nullptr, "there is no Vision Transformer \"", name, "\"; expected one of ",
                joined(names_of(kPresets)), ": choose one of them");
  return *found->value;
}

}  // namespace trireme::model
