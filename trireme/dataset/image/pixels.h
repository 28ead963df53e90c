// Pixels in memory, rectangles of them, and what changes them. Resizing brings a region of an image
// to another size, with an antialiased filter: bilinear, a triangle that is as wide as two pixels
// of the smaller of the two images, or bicubic, Keys' kernel with a = -0.5, twice as wide. The
// result is within one grey level of Pillow's `resize(size, BILINEAR)` of the cropped image, and
// within two of its BICUBIC. Sums are of integers, so every machine gives the same bits. Uses
// only the calling thread. The random draws of augmentation have a stream for each kind, so turning
// one on or off changes no other.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/bounds.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/image/image_source.h"

namespace trireme::dataset {

// Limits on images from files. An image of this size takes 200 MB.
inline constexpr int64_t kMostSide = kMaxImageSize;
inline constexpr int64_t kMostPixels = 1 << 26;

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

// Whole pixels.
struct Box {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const Box&) const = default;
};

// Parts of pixels too.
struct Region {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct Pixels {
  ImageSize size;
  std::unique_ptr<uint8_t[]> values;  // [H, W, 3] red, green, blue
};

inline Box whole(const ImageSize& size) { return {0, 0, size.height, size.width}; }
inline Region as_region(const Box& box) {
  return {static_cast<double>(box.top), static_cast<double>(box.left),
          static_cast<double>(box.height), static_cast<double>(box.width)};
}

// Values side by side: [height, width, channels].
struct ImageView {
  const uint8_t* values = nullptr;
  ImageSize size;
  int64_t channels = 0;  // 1 or 3
};

// Source: bicubic: Keys 1981, "Cubic convolution interpolation for digital image processing"
enum class ResizeFilter { kBilinear, kBicubic };
struct ResizeOptions {
  ResizeFilter filter = ResizeFilter::kBilinear;
  // Pixels outside of the region count where the filter reaches them, as if the whole image were
  // resized and then cut. Otherwise only those count that are in the region or that it cuts.
  bool reads_around = false;
  bool flip = false;  // left and right are exchanged
};
// region: lies in `from`
// Shapes:  -> [C, H, W] of `shape`
void resize(const ImageView& from, const Region& region, const ImageShape& shape,
            const ResizeOptions& options, uint8_t* out);

// Throws: ConfigError
void check_augmentation(const AugmentOptions& options);

Box draw_resized_crop(RandomKey key, const ImageSize& size, const AugmentOptions& options);
bool draw_flip(RandomKey key);

struct Shift {
  int64_t down = 0;
  int64_t right = 0;
};
// Each of -most to most, both included.
Shift draw_shift(RandomKey key, int64_t most);

// Moves the values of an image; `padding` fills what comes into view.
// Shapes:  [C, H, W] -> [C, H, W]
void shift_image(const uint8_t* from, const ImageShape& shape, const Shift& shift, Padding padding,
                 uint8_t* to);

}  // namespace trireme::dataset
