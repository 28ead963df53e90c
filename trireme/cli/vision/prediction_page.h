// A page that shows images with what a classifier found in them. One file, which needs no other.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::cli::inline internal {

struct Prediction {
  at::Tensor image_CHW{};  // uint8, C = 1 or 3
  int64_t label = 0;       // the image's class
  int64_t found = 0;       // the classifier's
  double probability = 0;  // that it gives it

  bool is_right() const { return found == label; }
};

struct ClassResult {
  std::string name;
  int64_t num_images = 0;
  int64_t num_right = 0;
};

// HTML: the accuracy of each class, then up to `most` images: half of them wrong ones, the surest
// first, the others right ones.
std::string prediction_page(std::span<const ClassResult> classes,
                            std::span<const Prediction> predictions, size_t most);

// The image as a BMP file of 24 bits per pixel.
std::string to_bmp(const at::Tensor& image_CHW);

}  // namespace trireme::cli::inline internal
