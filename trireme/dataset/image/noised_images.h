// Images with what a diffusion model is trained to find in them. A sample of `images` gains
//   timestep  [] int64, uniform in [0, timesteps)
//   noise     [C, H, W] fp32, standard normal
// and in training the class of some becomes `null_class`, so that the model learns images without a
// class too. In evaluation each sample always has the same timestep and noise, and its own class.
// Source: Ho et al. 2020, arXiv:2006.11239, algorithm 1; dropped classes: Ho and Salimans 2022,
//         arXiv:2207.12598, algorithm 1
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/dataset/image/image_source.h"

namespace trireme::dataset {

struct NoiseDraws {
  int64_t timesteps = 1000;
  double class_dropout = 0.1;  // probability that a class is dropped
  int64_t null_class = 0;
};

// Throws: InternalError for draws out of range
std::unique_ptr<ImageSource> noised(std::shared_ptr<const ImageSource> images,
                                    const NoiseDraws& draws);

// The noise that image number `image` of a sampling begins with.
// Shapes:  -> [C, H, W] fp32
at::Tensor sampling_noise(uint64_t seed, int64_t image, const ImageShape& shape);

}  // namespace trireme::dataset
