// The keys of the vision task.
#pragma once

#include <cstdint>

#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/vit/vit_config.h"
#include "trireme/tasks/vision/image_config.h"

namespace trireme::tasks {

enum class ImageFamily { kVit, kResNet18, kResNet34, kResNet50, kResNet101, kResNet152 };
inline constexpr Choice<ImageFamily> kImageFamilies[] = {{"vit", ImageFamily::kVit},
                                                         {"resnet18", ImageFamily::kResNet18},
                                                         {"resnet34", ImageFamily::kResNet34},
                                                         {"resnet50", ImageFamily::kResNet50},
                                                         {"resnet101", ImageFamily::kResNet101},
                                                         {"resnet152", ImageFamily::kResNet152}};

enum class ResNetStem { kLarge, kSmall };
inline constexpr Choice<ResNetStem> kResNetStems[] = {{"large", ResNetStem::kLarge},
                                                      {"small", ResNetStem::kSmall}};

struct ImageModelConfig {
  TRIREME_KEYS_BEGIN(ImageModelConfig)
  TRIREME_KEY(ImageFamily, family, ImageFamily::kVit, kMustStay, "model architecture",
              kImageFamilies)
  TRIREME_KEY(ResNetStem, stem, ResNetStem::kLarge, kMustStay,
              "resnet: first layers; large = 7x7 convolution with stride 2 and pooling, small = "
              "one 3x3 convolution, for images below about 64 pixels",
              kResNetStems)
  TRIREME_KEY(bool, channels_last, true, kMustStay,
              "resnet: store activations in channels-last memory format")
  TRIREME_KEYS_END()
};

// Mean and deviation for normalising pixels: (value / 255 - mean) / deviation.
enum class Normalisation { kImageNet, kHalf };
inline constexpr Choice<Normalisation> kNormalisations[] = {{"imagenet", Normalisation::kImageNet},
                                                            {"half", Normalisation::kHalf}};

struct PixelConfig {
  TRIREME_KEYS_BEGIN(PixelConfig)
  TRIREME_KEY(Normalisation, normalise, Normalisation::kImageNet, kMustStay,
              "mean and standard deviation used to normalise pixels; imagenet = those of ImageNet, "
              "half = 0.5 for both",
              kNormalisations)
  TRIREME_KEYS_END()
};

struct BlendConfig {
  TRIREME_KEYS_BEGIN(BlendConfig)
  TRIREME_KEY(double, mixup, 0.0, kMustStay,
              "alpha of mixup, which blends pairs of images in a microbatch by a share from "
              "Beta(alpha, alpha); 0 = off",
              Range{0, 1})
  TRIREME_KEY(double, label_smoothing, 0.0, kMustStay,
              "fraction of the target probability spread over all classes",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEYS_END()
};

struct VisionConfig : ImageFiles {
  ImageModelConfig model;
  model::VitConfig vit;  // in the section [model] too; `classes` is every family's
  PixelConfig pixels;    // in the section [data] too
  BlendConfig blend;     // in the section [augment] too
};

}  // namespace trireme::tasks
