// The keys of the vision task.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/vit/vit_config.h"

namespace trireme::tasks {

enum class ImageFamily { kVit, kResNet18, kResNet34, kResNet50 };
inline constexpr Choice<ImageFamily> kImageFamilies[] = {{"vit", ImageFamily::kVit},
                                                         {"resnet18", ImageFamily::kResNet18},
                                                         {"resnet34", ImageFamily::kResNet34},
                                                         {"resnet50", ImageFamily::kResNet50}};

enum class ResNetStem { kLarge, kSmall };
inline constexpr Choice<ResNetStem> kResNetStems[] = {{"large", ResNetStem::kLarge},
                                                      {"small", ResNetStem::kSmall}};

struct ImageModelConfig {
  TRIREME_KEYS_BEGIN(ImageModelConfig)
  TRIREME_KEY(ImageFamily, family, ImageFamily::kVit, kMustStay, "architecture", kImageFamilies)
  TRIREME_KEY(ResNetStem, stem, ResNetStem::kLarge, kMustStay,
              "resnet: how it begins; \"small\" is for images below some 64 pixels", kResNetStems)
  TRIREME_KEY(bool, channels_last, true, kMustStay,
              "resnet: activations lie with their channels together")
  TRIREME_KEYS_END()
};

enum class ImageFormat { kAuto, kFolder, kTar, kIdx, kCifar10, kCifar100 };
inline constexpr Choice<ImageFormat> kImageFormats[] = {
    {"auto", ImageFormat::kAuto},       {"folder", ImageFormat::kFolder},
    {"tar", ImageFormat::kTar},         {"idx", ImageFormat::kIdx},
    {"cifar10", ImageFormat::kCifar10}, {"cifar100", ImageFormat::kCifar100}};

// What values of a pixel become: (value / 255 - mean) / deviation.
enum class Normalisation { kImageNet, kHalf };
inline constexpr Choice<Normalisation> kNormalisations[] = {{"imagenet", Normalisation::kImageNet},
                                                            {"half", Normalisation::kHalf}};

struct ImageDataConfig {
  TRIREME_KEYS_BEGIN(ImageDataConfig)
  TRIREME_KEY(std::string, path, "data/images", kMustStay,
              "folder of the images; see data.format for what is in it")
  TRIREME_KEY(ImageFormat, format, ImageFormat::kAuto, kMustStay,
              "folder: train/CLASS/*.png|jpg and validation/CLASS/...; tar: train/*.tar and "
              "validation/*.tar; idx: MNIST's four files; cifar10, cifar100: their binary files; "
              "auto: what it finds",
              kImageFormats)
  TRIREME_KEY(int64_t, image_size, 0, kMustStay,
              "height and width that images of any size are brought to; 0 = as they are",
              Range{0, kMaxImageSize})
  TRIREME_KEY(Normalisation, normalise, Normalisation::kImageNet, kMustStay,
              "mean and deviation of the pixels: ImageNet's, or 0.5 each", kNormalisations)
  TRIREME_KEYS_END()
};

enum class RandomCrop { kNone, kShift, kResized };
inline constexpr Choice<RandomCrop> kRandomCrops[] = {
    {"none", RandomCrop::kNone}, {"shift", RandomCrop::kShift}, {"resized", RandomCrop::kResized}};

struct AugmentConfig {
  TRIREME_KEYS_BEGIN(AugmentConfig)
  TRIREME_KEY(RandomCrop, crop, RandomCrop::kNone, kMustStay,
              "shift: by up to augment.padding pixels; resized: a random part, as large as the "
              "image again",
              kRandomCrops)
  TRIREME_KEY(int64_t, padding, 4, kMustStay, "pixels that crop = \"shift\" moves an image by",
              Range{0, kMaxImageSize})
  TRIREME_KEY(double, smallest_area, 0.08, kMustStay,
              "smallest part of an image that crop = \"resized\" keeps",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(bool, flip, false, kMustStay, "mirror half of the images")
  TRIREME_KEY(double, mixup, 0.0, kMustStay,
              "blend images of a microbatch in pairs; the parameter of the beta distribution, 0 = "
              "never",
              Range{0, 1})
  TRIREME_KEY(double, label_smoothing, 0.0, kMustStay,
              "share of the target that is spread over all classes",
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
