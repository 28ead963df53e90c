// A page that shows images with what a classifier found in them. One file, which needs no other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::cli {

struct Prediction {
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

// The result over all classes together; without a name.
ClassResult total_of(std::span<const ClassResult> classes);

// HTML: the accuracy of each class, then up to `most` images: half of them wrong ones, the surest
// first, the others right ones.
// image_of: the image of prediction number `index`; asked for those that are shown
// Shapes: image_of() -> [C, H, W] uint8, C = 1 or 3
std::string prediction_page(std::span<const ClassResult> classes,
                            std::span<const Prediction> predictions, size_t most,
                            const std::function<at::Tensor(size_t index)>& image_of);

// The image as a BMP file of 24 bits per pixel.
std::string to_bmp(const at::Tensor& image_CHW);

}  // namespace trireme::cli
