#include "trireme/model/dit/noise_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

// The constants are the paper's.
double cosine_share(double part_of_time) {
  const double cosine = std::cos((part_of_time + 0.008) / 1.008 * std::numbers::pi / 2);
  return cosine * cosine;
}

at::Tensor betas_of(const NoiseOptions& options) {
  const int64_t steps = options.timesteps;
  if (options.form == NoiseForm::kLinear)
    return at::linspace(options.beta_start, options.beta_end, steps, at::kFloat);
  constexpr double kLargest = 0.999;
  std::vector<double> betas;
  for (int64_t i = 0; i < steps; ++i) {
    const auto at_step = [&](int64_t n) {
      return cosine_share(static_cast<double>(n) / static_cast<double>(steps));
    };
    betas.push_back(std::min(1 - at_step(i + 1) / at_step(i), kLargest));
  }
  return at::tensor(betas, at::kDouble).to(at::kFloat);
}

}  // namespace

NoiseSchedule::NoiseSchedule(const NoiseOptions& options) {
  TRIREME_CHECK(options.timesteps >= 1, "a schedule of ", options.timesteps,
                " timesteps; expected at least 1");
  TRIREME_CHECK(
      options.beta_start > 0 && options.beta_start <= options.beta_end && options.beta_end < 1,
      "variances from ", options.beta_start, " to ", options.beta_end,
      "; expected a range within 0 and 1 that rises");
  kept_T_ = at::cumprod(1 - betas_of(options), 0);
}

at::Tensor NoiseSchedule::add_noise(const at::Tensor& images, const at::Tensor& noise,
                                    const at::Tensor& timesteps_B) const {
  std::vector<int64_t> shape(static_cast<size_t>(images.dim()), 1);
  shape.front() = images.size(0);
  const at::Tensor kept = kept_T_.to(images.device(), images.scalar_type())
                              .index_select(0, timesteps_B.to(images.device()))
                              .view(shape);
  return kept.sqrt() * images + (1 - kept).sqrt() * noise;
}

std::vector<int64_t> NoiseSchedule::sampling_timesteps(int64_t steps) const {
  TRIREME_CHECK(steps >= 1 && steps <= num_timesteps(), "a sampling in ", steps,
                " steps; expected 1 to ", num_timesteps(), ", the timesteps of the schedule");
  const int64_t distance = num_timesteps() / steps;
  std::vector<int64_t> timesteps;
  for (int64_t i = steps - 1; i >= 0; --i) timesteps.push_back(i * distance);
  return timesteps;
}

at::Tensor NoiseSchedule::remove_noise(const at::Tensor& images, const at::Tensor& noise,
                                       int64_t timestep, int64_t steps) const {
  const int64_t next = timestep - num_timesteps() / steps;
  const at::Tensor kept = kept_T_[timestep].to(images.device());
  const at::Tensor kept_next = next >= 0 ? kept_T_[next].to(images.device()) : at::ones_like(kept);
  const at::Tensor image = ((images - (1 - kept).sqrt() * noise) / kept.sqrt()).clamp(-1, 1);
  return kept_next.sqrt() * image + (1 - kept_next).sqrt() * noise;
}

}  // namespace trireme::model
