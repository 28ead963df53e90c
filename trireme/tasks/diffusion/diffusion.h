// The task of image generation: find the noise in images by class, with a diffusion transformer.
// Samples new images from a checkpoint on one rank, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/dit/diffusion_transformer.h"
#include "trireme/model/dit/noise_schedule.h"
#include "trireme/tasks/diffusion/diffusion_config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

std::unique_ptr<train::Task> make_diffusion_task();
inline constexpr train::TaskKind kDiffusion = {"diffusion", "draw images of a class",
                                               make_diffusion_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
DiffusionConfig& diffusion_of(train::RunConfig& config);

struct SamplingOptions {
  // One image for each; the model's null class for none.
  std::vector<int64_t> classes{};
  int64_t steps = 50;
  // How far the noise is moved from that of no class to that of the class and beyond. 1: that of
  // the class.
  // Source: Ho and Salimans 2022, arXiv:2207.12598, equation 6, where it is w + 1
  double guidance = 4;
  uint64_t seed = 0;
};

// Is told how many steps are done, of how many.
using SamplingProgress = std::function<void(int64_t done, int64_t total)>;

// Image i of a seed begins with the same noise, whatever else is drawn.
// on_step: may be empty
// Shapes:  -> [images, C, H, W] uint8
// Throws:  ConfigError for a class or a number of steps that the model does not have
// Source:  Song et al. 2020, arXiv:2010.02502, section 4.1, with eta = 0
at::Tensor sample_images(model::DiffusionTransformer& model, const model::NoiseSchedule& schedule,
                         const SamplingOptions& options, const SamplingProgress& on_step = {});

// A whole model on one rank.
struct TrainedDiffusion {
  train::RunConfig config;
  std::unique_ptr<model::DiffusionTransformer> model;

  model::NoiseSchedule schedule() const;
};

// Reads no images.
// Throws: CheckpointError, also when the checkpoint is of another task, and for weights that are
//         not finite or not there
TrainedDiffusion load_trained_diffusion(const std::filesystem::path& path,
                                        train::Weights weights = train::Weights::kLast);

}  // namespace trireme::tasks
