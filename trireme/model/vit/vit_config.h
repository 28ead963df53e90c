// The shape of a Vision Transformer. Its keys are in the [model] section of a task that trains one;
// the data decide the rest, such as the size of images.
// Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1 and table 1
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {

// The letters L, D, N and F are those of docs/reference/shapes.md. The default is ViT-S/16.
struct VitConfig {
  int64_t image_size = 224;  // height and width of the images, in pixels
  int64_t channels = 3;      // of the images

  TRIREME_KEYS_BEGIN(VitConfig)
  TRIREME_KEY(int64_t, patch_size, 16, kMustStay,
              "height and width of a patch, in pixels; must divide the image size",
              Range{1, kMaxImageSize})
  TRIREME_KEY(int64_t, layers, 12, kMustStay, "L: number of transformer blocks",
              Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, width, 384, kMustStay, "D: width of the residual stream",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, heads, 6, kMustStay, "N: number of attention heads; must divide width",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, ffn_width, 1536, kMustStay, "F: hidden width of the feed-forward",
              Range{1, kMaxFfnWidth})
  TRIREME_KEY(int64_t, classes, 0, kMustStay, "number of classes; 0 = as many as the data has",
              Range{0, kMaxClasses})
  TRIREME_KEY(double, norm_epsilon, 1e-12, kMustStay,
              "epsilon added to the variance in normalisation layers", kEpsilon)
  TRIREME_KEY(double, dropout, 0.0, kMustStay,
              "dropout probability after the embedding, the attention and the feed-forward",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEYS_END()

  int64_t num_patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  int64_t num_tokens() const { return num_patches() + 1; }  // T: the class token, then the patches
  int64_t patch_elements() const { return channels * patch_size * patch_size; }
  // The part of the config that the blocks, the tensor axis (TensorCuts) and the context axis read.
  ModelConfig block_config() const;
};

// Throws: ConfigError with the key, the value found and the value expected
void validate(const VitConfig& config);

// The published sizes, for images of 224 x 224 pixels: "vit_s16" (Touvron et al. 2020,
// arXiv:2012.12877, table 1) and "vit_b16". Classes are left to the data.
// Throws: ConfigError for another name
VitConfig vit_preset(std::string_view name);

}  // namespace trireme::model
