// The keys of section [vision]: a vision tower and a projector, whose features of images take the
// places of tokens in a language model.
// Sources: Liu et al. 2023, arXiv:2304.08485, section 4.1; the tower: Radford et al. 2021,
//          arXiv:2103.00020, section 2.4
#pragma once

#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"

namespace trireme::model {

struct VisionConfig {
  static constexpr int64_t kChannels = 3;

  TRIREME_KEYS_BEGIN(VisionConfig)
  TRIREME_KEY(int64_t, layers, 0, kMustStay,
              "number of transformer blocks of the vision tower (CLIP), whose features of images "
              "take the places of image tokens; 0 = the model reads text only",
              Range{0, kMaxLayers})
  TRIREME_KEY(int64_t, width, 1024, kMustStay, "width of the vision tower's residual stream",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, heads, 16, kMustStay,
              "number of attention heads of the vision tower; must divide its width",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, ffn_width, 4096, kMustStay,
              "hidden width of the vision tower's feed-forward", Range{1, kMaxFfnWidth})
  TRIREME_KEY(int64_t, image_size, 336, kMustStay, "height and width of the images, in pixels",
              Range{1, kMaxImageSize})
  TRIREME_KEY(int64_t, patch_size, 14, kMustStay,
              "height and width of a patch, in pixels; must divide image_size; an image takes "
              "(image_size / patch_size)^2 tokens",
              Range{1, kMaxImageSize})
  TRIREME_KEY(double, norm_epsilon, 1e-5, kMustStay,
              "epsilon added to the variance in the vision tower's norms", kEpsilon)
  TRIREME_KEY(int64_t, feature_layer, -2, kMustStay,
              "the block after which the projector reads the vision tower, counted from the end: "
              "-1 = the last; those behind it are kept and do not run",
              Range{-kMaxLayers, -1})
  TRIREME_KEY(
      int64_t, image_token, 32000, kMustStay,
      "token whose places in a sequence the features of images take; not 0, which fills the "
      "ends of sequences",
      Range{1, kMaxVocabulary - 1})
  TRIREME_KEYS_END()

  double images_per_sequence = 1;  // the data's, once they are open

  bool is_on() const { return layers > 0; }
  int64_t side() const { return image_size / patch_size; }  // patches in a row of the image
  int64_t num_patches() const { return side() * side(); }   // an image's tokens
  // The blocks that run.
  int64_t used_layers() const { return layers + 1 + feature_layer; }
};

// The modules' names in the model.
inline constexpr const char* kVisionTower = "vision_tower";
inline constexpr const char* kProjector = "multi_modal_projector";

}  // namespace trireme::model
