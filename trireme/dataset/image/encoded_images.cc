#include "trireme/dataset/image/encoded_images.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {

ImageMaker::ImageMaker(const ImageOptions& options, std::span<const std::byte> first,
                       const std::string& name)
    : options_(options), first_name_(name) {
  require_images();
  TRIREME_CHECK(options.size >= 0 && options.size <= kMostSide, "the images' size is ",
                options.size, " pixels; expected 0 (as they are) to ", kMostSide);
  TRIREME_CHECK(options.centre > 0 && options.centre <= 1, "the centre crop takes ", options.centre,
                " of the shorter side; expected a part above 0 and up to 1");
  check_augmentation(options.augment);
  const ImageSize size =
      options.size > 0 ? ImageSize{options.size, options.size} : image_size(first, name);
  shape_ = {3, size.height, size.width};
}

Box ImageMaker::centre_of(const ImageSize& size) const {
  if (options_.size == 0) return whole(size);
  const auto shorter = static_cast<double>(std::min(size.height, size.width));
  const auto side = std::max<int64_t>(std::llround(shorter * options_.centre), 1);
  return {(size.height - side) / 2, (size.width - side) / 2, side, side};
}

at::Tensor ImageMaker::make(std::span<const std::byte> bytes, const std::string& name,
                            std::optional<RandomKey> augmentation) const {
  const ImageSize size = image_size(bytes, name);
  TRIREME_CHECK(options_.size > 0 || (size.height == shape_.height && size.width == shape_.width),
                name, " has ", size.height, " x ", size.width, " pixels and ", first_name_, " ",
                shape_.height, " x ", shape_.width,
                "; state a size to which all images are brought");
  const AugmentOptions& augment = options_.augment;
  Box box = centre_of(size);
  bool flip = false;
  if (augmentation) {
    if (augment.resized_crop) box = draw_resized_crop(*augmentation, size, augment);
    flip = augment.horizontal_flip && draw_flip(*augmentation);
  }
  const DecodedBox decoded = decode_image(bytes, name, box, {shape_.height, shape_.width});
  const auto empty = [this] {
    return at::empty({shape_.channels, shape_.height, shape_.width},
                     at::TensorOptions().dtype(at::kByte));
  };
  at::Tensor image = empty();
  resize({decoded.pixels.values.get(), decoded.pixels.size, 3}, decoded.region, shape_,
         {.flip = flip}, image.mutable_data_ptr<uint8_t>());
  if (!augmentation || augment.crop_padding == 0) return image;
  at::Tensor shifted = empty();
  shift_image(image.const_data_ptr<uint8_t>(), shape_,
              draw_shift(*augmentation, augment.crop_padding), augment.padding,
              shifted.mutable_data_ptr<uint8_t>());
  return shifted;
}

NamedTensors image_sample(at::Tensor image, int64_t label) {
  return {{"image", std::move(image)},
          {"label", at::scalar_tensor(label, at::TensorOptions().dtype(at::kLong))}};
}

ClassNumbers numbers_of(const std::vector<std::string>& classes) {
  ClassNumbers numbers;
  for (const std::string& name : classes) numbers.emplace(name, std::ssize(numbers));
  return numbers;
}

std::vector<std::string> agreed_classes(const std::vector<std::string>& found,
                                        const std::string& where, const ImageSource* like) {
  if (like == nullptr) return found;
  const ClassNumbers numbers = numbers_of(like->classes());
  for (const std::string& name : found) {
    TRIREME_CHECK(numbers.contains(name), where, " has the class \"", shown(name),
                  "\", which the training data does not have");
  }
  return like->classes();
}

void check_shape_like(const ImageShape& shape, const std::string& where, const ImageSource* like) {
  if (like == nullptr || like->shape() == shape) return;
  const ImageShape other = like->shape();
  throw ConfigError(concat(where, " has images of ", shape.channels, " x ", shape.height, " x ",
                           shape.width, " and the training data ", other.channels, " x ",
                           other.height, " x ", other.width,
                           "; state a size to which all images are brought"));
}

std::vector<std::filesystem::directory_entry> items_of(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::directory_entry> items;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) items.push_back(*next);
  TRIREME_CHECK(!error, "cannot read the folder ", folder.string(), ": ", error.message());
  std::ranges::sort(items, {}, [](const auto& item) { return item.path().native(); });
  return items;
}

void require_printable(const std::filesystem::path& folder, const std::string& name) {
  TRIREME_CHECK(is_printable(name), "the folder ", folder.string(), " has \"", shown(name),
                "\", a name with control characters; rename it");
}

bool is_image_name(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower.ends_with(".png") || lower.ends_with(".jpg") || lower.ends_with(".jpeg");
}

}  // namespace trireme::dataset
