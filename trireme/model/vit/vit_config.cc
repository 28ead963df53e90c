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
  const std::pair<std::string_view, int64_t> sizes[] = {{"patch_size", config.patch_size},
                                                        {"layers", config.layers},
                                                        {"width", config.width},
                                                        {"heads", config.heads},
                                                        {"ffn_width", config.ffn_width}};
  for (const auto& [key, value] : sizes) {
    TRIREME_CHECK(value > 0, "model.", key, " = ", value, "; expected at least 1: set it higher");
  }
  TRIREME_CHECK(config.image_size >= 1 && config.image_size <= kMaxImageSize &&
                    config.channels >= 1 && config.channels <= kMaxChannels,
                "images of ", config.channels, " x ", config.image_size, " x ", config.image_size,
                "; expected 1 to ", kMaxChannels, " channels and 1 to ", kMaxImageSize, " pixels");
  TRIREME_CHECK(config.classes >= 0, "model.classes = ", config.classes,
                "; expected at least 1, or 0 to take it from the data");
  TRIREME_CHECK(config.norm_epsilon > 0, "model.norm_epsilon = ", config.norm_epsilon,
                "; expected a positive number such as 1e-12");
  TRIREME_CHECK(config.dropout >= 0 && config.dropout < 1, "model.dropout = ", config.dropout,
                "; expected at least 0 (none) and below 1, such as 0.1");
  TRIREME_CHECK(config.image_size % config.patch_size == 0,
                "model.patch_size = ", config.patch_size, " does not divide the images' size, ",
                config.image_size,
                "; expected a divisor: change it, or bring the images to another size");
  TRIREME_CHECK(config.width % config.heads == 0, "model.heads = ", config.heads,
                " does not divide model.width = ", config.width,
                "; expected a divisor: change one of them");
  TRIREME_CHECK(config.num_tokens() <= kMaxSequence, "images of ", config.image_size,
                " pixels and model.patch_size = ", config.patch_size, " make ", config.num_tokens(),
                " tokens; expected at most ", kMaxSequence, ": make the patches larger");
}

VitConfig vit_preset(std::string_view name) {
  const auto* const found = find_choice(kPresets, name);
  TRIREME_CHECK(found != nullptr, "there is no Vision Transformer \"", name, "\"; expected one of ",
                joined(names_of(kPresets)), ": choose one of them");
  return *found->value;
}

}  // namespace trireme::model
