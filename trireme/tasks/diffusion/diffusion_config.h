// The keys of the diffusion task.
#pragma once

#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/model/dit/dit_config.h"
#include "trireme/model/dit/noise_schedule.h"
#include "trireme/tasks/vision/image_config.h"

namespace trireme::tasks {

struct NoiseConfig {
  TRIREME_KEYS_BEGIN(NoiseConfig)
  TRIREME_KEY(int64_t, timesteps, 1000, kMustStay, "number of timesteps, from image to noise",
              Range{1, 1'000'000})
  TRIREME_KEY(model::NoiseForm, schedule, model::NoiseForm::kLinear, kMustStay,
              "how the noise grows; linear = variances rise from beta_start to beta_end, cosine = "
              "diffusers' squaredcos_cap_v2",
              model::kNoiseForms)
  TRIREME_KEY(double, beta_start, 1e-4, kMustStay,
              "schedule = \"linear\": variance of the first timestep",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true, .below_maximum = true})
  TRIREME_KEY(double, beta_end, 0.02, kMustStay,
              "schedule = \"linear\": variance of the last timestep",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true, .below_maximum = true})
  TRIREME_KEY(double, class_dropout, 0.1, kMustStay,
              "probability that a training image loses its class, for guidance when sampling",
              Range{0, 1})
  TRIREME_KEYS_END()

  model::NoiseOptions options() const { return {timesteps, schedule, beta_start, beta_end}; }
};

struct DiffusionConfig : ImageFiles {
  model::DitConfig dit;  // in the section [model]
  NoiseConfig noise;     // in the section [diffusion]
};

}  // namespace trireme::tasks
