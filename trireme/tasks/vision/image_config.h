// The keys of images by class, which the tasks vision and diffusion share.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"

namespace trireme::tasks {

enum class ImageFormat { kAuto, kFolder, kTar, kIdx, kCifar10, kCifar100 };
inline constexpr Choice<ImageFormat> kImageFormats[] = {
    {"auto", ImageFormat::kAuto},       {"folder", ImageFormat::kFolder},
    {"tar", ImageFormat::kTar},         {"idx", ImageFormat::kIdx},
    {"cifar10", ImageFormat::kCifar10}, {"cifar100", ImageFormat::kCifar100}};

struct ImageDataConfig {
  TRIREME_KEYS_BEGIN(ImageDataConfig)
  TRIREME_KEY(std::string, path, "data/images", kMustStay,
              "folder of the images, on a disk or in an object store: s3://BUCKET/PREFIX, "
              "gs://BUCKET/PREFIX, https://HOST/PREFIX; data.format describes its contents")
  TRIREME_KEY(std::string, cache, "", kMayChange,
              "folder on a local disk that keeps what is read of data in an object store; "
              "\"\" = keep nothing")
  TRIREME_KEY(int64_t, cache_bytes, int64_t{10} << 30, kMayChange,
              "limit on the size of data.cache, in bytes; what was not used for longest goes first",
              Range{1 << 20, 1e15})
  TRIREME_KEY(int64_t, store_timeout, 120, kMayChange,
              "seconds for which a read tries again while an object store does not answer",
              Range{1, 86400})
  TRIREME_KEY(ImageFormat, format, ImageFormat::kAuto, kMustStay,
              "layout of data.path; folder = train/CLASS/*.png|jpg and validation/CLASS/..., or "
              "CLASS/*.png|jpg, tar = train/*.tar and validation/*.tar, idx = the four files of "
              "MNIST, cifar10, cifar100 = their binary files, auto = detect",
              kImageFormats)
  TRIREME_KEY(double, validation_share, 0.1, kMustStay,
              "fraction of each class used for validation, where data.path has CLASS/*.png|jpg or "
              "train/CLASS/... and no validation/, val/ or valid/",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEY(int64_t, image_size, 0, kMustStay,
              "height and width to which images are resized, in pixels; 0 = keep their size",
              Range{0, kMaxImageSize})
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
  TRIREME_KEYS_END()
};

// Which images to open, and what changes them in training.
struct ImageFiles {
  ImageDataConfig data;
  AugmentConfig augment;
};

}  // namespace trireme::tasks
