// Images with a class each, and random changes of training images that keep their class. A sample
// has
//   image  [C, H, W] uint8, C = 1 (grey) or 3 (red, green, blue)
//   label  [] int64, the class, from 0
// Every change is drawn from the sample's random numbers, which depend only on the seed and the
// sample's position, so it is the same in every layout, after every resume and with any number of
// threads. Evaluation changes nothing.
#pragma once

#include <cstdint>
#include <memory>
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
  // The shape of every sample.
  virtual ImageShape shape() const = 0;
  // The names of the classes, by number.
  virtual const std::vector<std::string>& classes() const = 0;
  // Files and hidden folders that lie among the images and are none.
  virtual int64_t num_left_out() const { return 0; }
};

// Of that number, for people: "2 files that are not images". "": nothing was left out.
std::string left_out_text(int64_t num_left_out);

enum class Padding { kZero, kEdge };

struct AugmentOptions {
  // A random part of the image, brought to the image's size. Its area is a part of the image's, and
  // its width divided by its height, both between these limits; the logarithm of the ratio is
  // uniform. If ten draws do not fit into the image, the largest centred part with a fitting ratio.
  // Source: Szegedy et al. 2014, arXiv:1409.4842, section 6; torchvision's RandomResizedCrop
  bool resized_crop = false;
  double smallest_area = 0.08;
  double largest_area = 1;
  double smallest_ratio = 3.0 / 4;
  double largest_ratio = 4.0 / 3;
  // Largest shift of the image in each direction, in pixels; `padding` fills the gap.
  // Source: He et al. 2015, arXiv:1512.03385, section 4.2
  int64_t crop_padding = 0;
  Padding padding = Padding::kZero;
  // Left and right are exchanged in half of the images.
  bool horizontal_flip = false;
};

// The images of `source`, augmented. Sources of PNG and JPEG files augment by themselves, which is
// faster, because they decode only what a crop needs (ImageOptions::augment).
// Throws: ConfigError for limits that no image meets
std::unique_ptr<ImageSource> augmented(std::shared_ptr<const ImageSource> source,
                                       const AugmentOptions& options);

// Options for decoding PNG and JPEG files.
struct ImageOptions {
  int64_t size = 0;          // images become size x size; 0: all have one size, and keep it
  double centre = 0.875;     // with `size`: the square in the middle that is kept without a random
                             // crop, as a part of the shorter side; 1: all of it
  AugmentOptions augment{};  // in training
};

}  // namespace trireme::dataset
