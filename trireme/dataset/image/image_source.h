// Images with a class each. A sample has
//   image  [C, H, W] uint8, C = 1 (grey) or 3 (red, green, blue)
//   label  [] int64, the class, from 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/dataset/source.h"

namespace trireme::dataset {

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageShape&) const = default;
  int64_t num_values() const { return channels * height * width; }
};

class ImageSource : public Source {
 public:
  // Of every sample.
  virtual ImageShape shape() const = 0;
  // The names of the classes, by number.
  virtual const std::vector<std::string>& classes() const = 0;
};

}  // namespace trireme::dataset
