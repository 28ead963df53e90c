// The shape of a diffusion transformer. Its keys are in the [model] section of a task that trains
// one; the data decide those that are 0.
// Source: Peebles and Xie 2022, arXiv:2212.09748, section 3.2 and table 1
#pragma once

#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {

// The letters L, D and N are those of docs/reference/shapes.md. The default is DiT-S/2.
struct DitConfig {
  TRIREME_KEYS_BEGIN(DitConfig)
  TRIREME_KEY(int64_t, image_size, 0, kMustStay,
              "height and width of the images, in pixels; 0 = those of the data",
              Range{0, kMaxImageSize})
  TRIREME_KEY(int64_t, channels, 0, kMustStay, "channels of the images; 0 = those of the data",
              Range{0, kMaxChannels})
  TRIREME_KEY(int64_t, patch_size, 2, kMustStay,
              "height and width of a patch, in pixels; must divide the image size",
              Range{1, kMaxImageSize})
  TRIREME_KEY(int64_t, layers, 12, kMustStay, "L: number of transformer blocks",
              Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, width, 384, kMustStay,
              "D: width of the residual stream, a multiple of 4; the feed-forward has 4 D",
              Range{4, kMaxFfnWidth / 4})
  TRIREME_KEY(int64_t, heads, 6, kMustStay, "N: number of attention heads; must divide width",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, classes, 0, kMustStay, "number of classes; 0 = as many as the data has",
              Range{0, kMaxClasses - 1})
  TRIREME_KEY(double, norm_epsilon, 1e-6, kMustStay,
              "epsilon added to the variance in the norm before the feed-forward; other norms add "
              "1e-6",
              kEpsilon)
  TRIREME_KEYS_END()

  int64_t num_tokens() const {  // T: patches
    return (image_size / patch_size) * (image_size / patch_size);
  }
  int64_t patch_elements() const { return channels * patch_size * patch_size; }
  int64_t ffn_width() const { return 4 * width; }  // F
  // The class of images without one. The embedding of classes has a row for it.
  int64_t null_class() const { return classes; }
  // The part of the config that the blocks, the tensor axis (TensorCuts) and the context axis read.
  ModelConfig block_config() const;
};

// Throws: ConfigError with the key, the value found and the value expected
void validate(const DitConfig& config);

}  // namespace trireme::model
