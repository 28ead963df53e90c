// Pixels in memory, and rectangles of them.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/bounds.h"

namespace trireme::dataset::inline internal {

// Of anything that may come from a file. An image of these limits takes 200 MB.
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

}  // namespace trireme::dataset::inline internal
