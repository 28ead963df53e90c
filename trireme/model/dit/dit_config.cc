#include "trireme/model/dit/dit_config.h"

#include "trireme/base/error.h"

namespace trireme::model {

ModelConfig DitConfig::block_config() const {
  return {.family = "dit",
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .ffn_width = ffn_width(),
          .sequence_length = num_tokens(),
          .vocab_size = 0,
          .norm_epsilon = norm_epsilon,
          .dropout = 0};
}

void validate(const DitConfig& config) {
  TRIREME_CHECK(config.patch_size > 0 && config.layers > 0 && config.heads > 0,
                "model.patch_size = ", config.patch_size, ", model.layers = ", config.layers,
                " and model.heads = ", config.heads, "; expected at least 1 each: set them higher");
  TRIREME_CHECK(config.width > 0 && config.width % 4 == 0, "model.width = ", config.width,
                "; expected a multiple of 4, as a position is four sines and cosines: change it");
  TRIREME_CHECK(config.width % config.heads == 0, "model.heads = ", config.heads,
                " does not divide model.width = ", config.width,
                "; expected a divisor: change one of them");
  TRIREME_CHECK(config.image_size >= 1 && config.image_size <= kMaxImageSize &&
                    config.channels >= 1 && config.channels <= kMaxChannels,
                "images of ", config.channels, " x ", config.image_size, " x ", config.image_size,
                "; expected 1 to ", kMaxChannels, " channels and 1 to ", kMaxImageSize, " pixels");
  TRIREME_CHECK(config.classes >= 0, "model.classes = ", config.classes,
                "; expected at least 1, or 0 to take it from the data");
  TRIREME_CHECK(config.norm_epsilon > 0, "model.norm_epsilon = ", config.norm_epsilon,
                "; expected a positive number such as 1e-6");
  TRIREME_CHECK(config.image_size % config.patch_size == 0,
                "model.patch_size = ", config.patch_size, " does not divide the images' size, ",
                config.image_size,
                "; expected a divisor: change it, or bring the images to another size");
  TRIREME_CHECK(config.num_tokens() <= kMaxSequence, "images of ", config.image_size,
                " pixels and model.patch_size = ", config.patch_size, " make ", config.num_tokens(),
                " tokens; expected at most ", kMaxSequence, ": make the patches larger");
}

}  // namespace trireme::model
