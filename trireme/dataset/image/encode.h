// Pixels to the bytes of a PNG file.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::dataset {

// Shapes: image_CHW uint8, C = 1 (grey) or 3 (red, green, blue)
// Throws: ConfigError in a build without libpng
std::string encode_png(const at::Tensor& image_CHW);

}  // namespace trireme::dataset
