// The model of the diffusion task: a diffusion transformer that finds the noise in images.
#pragma once

#include <memory>

#include "trireme/tasks/diffusion/diffusion_config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

// `config` must outlive the model. The size of its images and its classes may be filled in later.
std::unique_ptr<train::TaskModel> make_dit_model(const DiffusionConfig& config);

}  // namespace trireme::tasks
