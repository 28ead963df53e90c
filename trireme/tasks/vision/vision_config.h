// The keys of the vision task.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/vit/vit_config.h"

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

enum class ImageFormat { kAuto, kFolder, kTar, kIdx, kCifar10, kCifar100 };
inline constexpr Choice<ImageFormat> kImageFormats[] = {
    {"auto", ImageFormat::kAuto},       {"folder", ImageFormat::kFolder},
    {"tar", ImageFormat::kTar},         {"idx", ImageFormat::kIdx},
    {"cifar10", ImageFormat::kCifar10}, {"cifar100", ImageFormat::kCifar100}};

// Mean and deviation for normalising pixels: (value / 255 - mean) / deviation.
enum class Normalisation { kImageNet, kHalf };
inline constexpr Choice<Normalisation> kNormalisations[] = {{"imagenet", Normalisation::kImageNet},
                                                            {"half", Normalisation::kHalf}};

struct ImageDataConfig {
  TRIREME_KEYS_BEGIN(ImageDataConfig)
  TRIREME_KEY(std::string, path, "data/images", kMustStay,
              "folder of the images; data.format describes its contents")
  TRIREME_KEY(ImageFormat, format, ImageFormat::kAuto, kMustStay,
              "layout of data.path; folder = train/CLASS/*.png|jpg and validation/CLASS/..., or "
              "CLASS/*.png|jpg, tar = train/*.tar and validation/*.tar, idx = the four files of "
              "MNIST, cifar10, cifar100 = their binary files, auto = detect",
              kImageFormats)
  TRIREME_KEY(double, validation_share, 0.1, kMustStay,
              "fraction of each class used for validation, where data.path has CLASS/*.png|jpg "
              "without train/",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEY(int64_t, image_size, 0, kMustStay,
              "height and width to which images are resized, in pixels; 0 = keep their size",
              Range{0, kMaxImageSize})
  TRIREME_KEY(Normalisation, normalise, Normalisation::kImageNet, kMustStay,
              "mean and standard deviation used to normalise pixels; imagenet = those of ImageNet, "
              "half = 0.5 for both",
              kNormalisations)
  TRIREME_KEYS_END()
};

enum class RandomCrop { kNone, kShift, kResized };
inline constexpr Choice<RandomCrop> kRandomCrops[] = {
    {"none", RandomCrop::kNone}, {"shift", RandomCrop::kShift}, {"resized", RandomCrop::kResized}};

struct AugmentConfig {
  TRIREME_KEYS_BEGIN(AugmentConfig)
  TRIREME_KEY(RandomCrop, crop, RandomCrop::kNone, kMustStay,
              "random crop in training; shift = move by up to augment.padding pixels, resized = "
              "cut out a random part and resize it to data.image_size",
              kRandomCrops)
  TRIREME_KEY(int64_t, padding, 4, kMustStay, "largest shift of crop = \"shift\", in pixels",
              Range{0, kMaxImageSize})
  TRIREME_KEY(double, smallest_area, 0.08, kMustStay,
              "smallest fraction of the image area that crop = \"resized\" keeps",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(bool, flip, false, kMustStay, "mirror half of the training images, chosen at random")
  TRIREME_KEY(double, mixup, 0.0, kMustStay,
              "alpha of mixup, which blends pairs of images in a microbatch by a share from "
              "Beta(alpha, alpha); 0 = off",
              Range{0, 1})
  TRIREME_KEY(double, label_smoothing, 0.0, kMustStay,
              "fraction of the target probability spread over all classes",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEYS_END()
};

struct VisionConfig {
  ImageModelConfig model;
  model::VitConfig vit;  // in the section [model] too; `classes` is every family's
  ImageDataConfig data;
  AugmentConfig augment;
};

}  // namespace trireme::tasks
