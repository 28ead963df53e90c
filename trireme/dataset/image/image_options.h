// What sources of PNG and JPEG files make of them.
#pragma once

#include <cstdint>

#include "trireme/dataset/image/augment.h"

namespace trireme::dataset {

struct ImageOptions {
  int64_t size = 0;          // images become size x size; 0: all have one size, and keep it
  double centre = 0.875;     // with `size`: the square in the middle that is kept without a random
                             // crop, as a part of the shorter side; 1: all of it
  AugmentOptions augment{};  // in training
};

}  // namespace trireme::dataset
