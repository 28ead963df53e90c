// What augmentation draws for an image. Each kind has its own stream of random numbers, so that
// one of them on or off changes no other.
#pragma once

#include <cstdint>

#include "trireme/base/random/random.h"
#include "trireme/dataset/image/augment.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset::inline internal {

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

}  // namespace trireme::dataset::inline internal
