// Brings a region of an image to another size, with an antialiased bilinear filter: a triangle that
// is as wide as two pixels of the smaller of the two images. The result is within one grey level of
// Pillow's `resize(size, BILINEAR)` of the cropped image. Sums are of integers, so every machine
// gives the same bits. Uses only the calling thread.
#pragma once

#include <cstdint>

#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset::inline internal {

// Values side by side: [height, width, channels].
struct ImageView {
  const uint8_t* values = nullptr;
  ImageSize size;
  int64_t channels = 0;  // 1 or 3
};

// Pixels outside of the region do not count, but those that it cuts do.
// region: lies in `from`
// flip: left and right are exchanged
// Shapes:  -> [C, H, W] of `shape`
void resize(const ImageView& from, const Region& region, const ImageShape& shape, bool flip,
            uint8_t* out);

}  // namespace trireme::dataset::inline internal
