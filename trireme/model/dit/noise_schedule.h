// How much noise an image has at each timestep, and the steps that take it away again.
// Source: Ho et al. 2020, arXiv:2006.11239, section 2; Song et al. 2020, arXiv:2010.02502
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme::model {

// linear: the variances of the steps rise evenly. cosine: the share of the image falls as the
// square of a cosine.
// Source: cosine: Nichol and Dhariwal 2021, arXiv:2102.09672, section 3.2
enum class NoiseForm { kLinear, kCosine };
inline constexpr Choice<NoiseForm> kNoiseForms[] = {{"linear", NoiseForm::kLinear},
                                                    {"cosine", NoiseForm::kCosine}};

struct NoiseOptions {
  int64_t timesteps = 1000;
  NoiseForm form = NoiseForm::kLinear;
  double beta_start = 1e-4;  // kLinear: variance of the first step
  double beta_end = 0.02;    // kLinear: that of the last step
};

// Computes in fp32 what diffusers' DDPMScheduler and DDIMScheduler compute in it, so that both have
// the same bits.
class NoiseSchedule {
 public:
  // Throws: ConfigError when the options make no schedule
  explicit NoiseSchedule(const NoiseOptions& options);

  int64_t num_timesteps() const { return kept_T_.size(0); }
  // The share of the image in the variance after each timestep: the cumulative product of 1 - beta.
  const at::Tensor& kept_T() const { return kept_T_; }  // [timesteps] fp32

  // sqrt(kept) image + sqrt(1 - kept) noise.
  // Shapes: images, noise [B, ...] of one floating type, timesteps_B [B] int64 -> as images
  // Source: Ho et al. 2020, arXiv:2006.11239, equation 4
  at::Tensor add_noise(const at::Tensor& images, const at::Tensor& noise,
                       const at::Tensor& timesteps_B) const;

  // The timesteps of a sampling in `steps` steps, evenly spaced, the noisiest first.
  // Throws: ConfigError when there are fewer timesteps than steps
  std::vector<int64_t> sampling_timesteps(int64_t steps) const;
  // One step of a sampling in `steps` steps without new noise. The image that `noise` leaves is
  // clipped to -1 to 1.
  // Shapes: images, noise [B, ...] -> as images
  // Source: Song et al. 2020, arXiv:2010.02502, equation 12 with sigma = 0
  at::Tensor remove_noise(const at::Tensor& images, const at::Tensor& noise, int64_t timestep,
                          int64_t steps) const;

 private:
  at::Tensor kept_T_;
};

}  // namespace trireme::model
