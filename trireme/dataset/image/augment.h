// Random changes of training images that keep their class. Every change is drawn from the sample's
// random numbers, which depend on the seed and the sample's position alone, so it is the same in
// every layout, after every resume and with any number of threads. Evaluation changes nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/dataset/image/image_source.h"

namespace trireme::dataset {

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
  // The image moves by up to so many pixels in each direction; `padding` fills the gap.
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

}  // namespace trireme::dataset
