#include "trireme/dataset/image/image_source.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {
namespace {

// [C, H, W] -> [H, W, C], or the same bits when C is 1.
std::vector<uint8_t> side_by_side(const uint8_t* planes, const ImageShape& shape) {
  std::vector<uint8_t> values(static_cast<size_t>(shape.num_values()));
  auto to = values.begin();
  const int64_t plane = shape.height * shape.width;
  for (int64_t i = 0; i < plane; ++i) {
    for (int64_t c = 0; c < shape.channels; ++c) *to++ = planes[c * plane + i];
  }
  return values;
}

class AugmentedImages final : public ImageSource {
 public:
  AugmentedImages(std::shared_ptr<const ImageSource> source, const AugmentOptions& options)
      : source_(std::move(source)), options_(options) {
    check_augmentation(options);
  }

  int64_t size() const override { return source_->size(); }
  std::vector<int64_t> shard_sizes() const override { return source_->shard_sizes(); }
  ImageShape shape() const override { return source_->shape(); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  int64_t num_left_out() const override { return source_->num_left_out(); }

  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override {
    NamedTensors sample = source_->get(index, augmentation);
    if (!augmentation) return sample;
    const auto image = std::ranges::find(sample, "image", &NamedTensor::first);
    TRIREME_ASSERT(image != sample.end(), "a sample without an image");
    image->second = change(image->second.contiguous(), *augmentation);
    return sample;
  }

 private:
  at::Tensor change(const at::Tensor& image, RandomKey key) const {
    const ImageShape shape = source_->shape();
    const auto* const values = image.const_data_ptr<uint8_t>();
    const bool flip = options_.horizontal_flip && draw_flip(key);
    at::Tensor changed = image;
    if (options_.resized_crop || flip) {
      const ImageSize size = {shape.height, shape.width};
      const Box box = options_.resized_crop ? draw_resized_crop(key, size, options_) : whole(size);
      changed = at::empty(image.sizes(), image.options());
      const std::vector<uint8_t> pixels = side_by_side(values, shape);
      resize({pixels.data(), size, shape.channels}, as_region(box), shape, {.flip = flip},
             changed.mutable_data_ptr<uint8_t>());
    }
    if (options_.crop_padding == 0) return changed;
    const at::Tensor shifted = at::empty(image.sizes(), image.options());
    shift_image(changed.const_data_ptr<uint8_t>(), shape, draw_shift(key, options_.crop_padding),
                options_.padding, shifted.mutable_data_ptr<uint8_t>());
    return shifted;
  }

  std::shared_ptr<const ImageSource> source_;
  AugmentOptions options_;
};

}  // namespace

std::string left_out_text(int64_t num_left_out) {
  if (num_left_out == 0) return "";
  return num_left_out == 1 ? "1 file that is not an image"
                           : concat(num_left_out, " files that are not images");
}

std::unique_ptr<ImageSource> augmented(std::shared_ptr<const ImageSource> source,
                                       const AugmentOptions& options) {
  TRIREME_ASSERT(source != nullptr, "augmented() without a source");
  return std::make_unique<AugmentedImages>(std::move(source), options);
}

}  // namespace trireme::dataset
