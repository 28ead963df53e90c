#include "trireme/dataset/image/image_draws.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme::dataset::inline internal {
namespace {

// A whole number in [0, count).
int64_t below(RandomKey key, uint64_t index, int64_t count) {
  const auto drawn = static_cast<int64_t>(random_uniform(key, index) * static_cast<double>(count));
  return std::min(drawn, count - 1);
}

}  // namespace

void check_augmentation(const AugmentOptions& options) {
  TRIREME_CHECK(options.smallest_area > 0 && options.smallest_area <= options.largest_area &&
                    options.largest_area <= 1,
                "a random crop has ", options.smallest_area, " to ", options.largest_area,
                " of an image's area; expected a range above 0 and up to 1");
  TRIREME_CHECK(options.smallest_ratio >= 1e-3 && options.smallest_ratio <= options.largest_ratio &&
                    options.largest_ratio <= 1e3,
                "a random crop's width is ", options.smallest_ratio, " to ", options.largest_ratio,
                " times its height; expected a range within 0.001 to 1000");
  TRIREME_CHECK(options.crop_padding >= 0 && options.crop_padding <= kMostSide,
                "images move by up to ", options.crop_padding, " pixels; expected 0 to ",
                kMostSide);
}

Box draw_resized_crop(RandomKey key, const ImageSize& size, const AugmentOptions& options) {
  const RandomKey draws = random_key(key.value, "image/resized_crop");
  const auto H = static_cast<double>(size.height);
  const auto W = static_cast<double>(size.width);
  const double lowest = std::log(options.smallest_ratio);
  const double highest = std::log(options.largest_ratio);
  constexpr uint64_t kTries = 10, kNumbers = 4;
  for (uint64_t at = 0; at < kTries * kNumbers; at += kNumbers) {
    const double part = options.smallest_area +
                        random_uniform(draws, at) * (options.largest_area - options.smallest_area);
    const double ratio = std::exp(lowest + random_uniform(draws, at + 1) * (highest - lowest));
    const auto width = static_cast<int64_t>(std::round(std::sqrt(H * W * part * ratio)));
    const auto height = static_cast<int64_t>(std::round(std::sqrt(H * W * part / ratio)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    return {below(draws, at + 2, size.height - height + 1),
            below(draws, at + 3, size.width - width + 1), height, width};
  }
  const double ratio = std::clamp(W / H, options.smallest_ratio, options.largest_ratio);
  const auto width = std::clamp<int64_t>(std::llround(H * ratio), 1, size.width);
  const auto height = std::clamp<int64_t>(std::llround(W / ratio), 1, size.height);
  return {(size.height - height) / 2, (size.width - width) / 2, height, width};
}

bool draw_flip(RandomKey key) {
  return random_uniform(random_key(key.value, "image/flip"), 0) < 0.5;
}

Shift draw_shift(RandomKey key, int64_t most) {
  const RandomKey draws = random_key(key.value, "image/shift");
  return {below(draws, 0, 2 * most + 1) - most, below(draws, 1, 2 * most + 1) - most};
}

void shift_image(const uint8_t* from, const ImageShape& shape, const Shift& shift, Padding padding,
                 uint8_t* to) {
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int64_t y = 0; y < shape.height; ++y) {
      const int64_t row = y - shift.down;
      const bool row_is_inside = row >= 0 && row < shape.height;
      const uint8_t* const values =
          from + (c * shape.height + std::clamp<int64_t>(row, 0, shape.height - 1)) * shape.width;
      for (int64_t x = 0; x < shape.width; ++x) {
        const int64_t column = x - shift.right;
        const bool is_inside = row_is_inside && column >= 0 && column < shape.width;
        const uint8_t value = values[std::clamp<int64_t>(column, 0, shape.width - 1)];
        *to++ = is_inside || padding == Padding::kEdge ? value : uint8_t{0};
      }
    }
  }
}

}  // namespace trireme::dataset::inline internal
