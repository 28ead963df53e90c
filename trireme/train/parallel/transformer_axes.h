// Whether the tensor and context axes can divide a transformer; for Task::check_layout().
#pragma once

#include "trireme/model/family/config.h"
#include "trireme/train/config/parallel_config.h"

namespace trireme::train {

// Throws: ConfigError with the key, its value, the reason, and what to do
void check_transformer_axes(const ParallelConfig& axes, const model::ModelConfig& model);

}  // namespace trireme::train
