// The tensors of a language model's checkpoint that are no parameters.
#pragma once

#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/model/family/config.h"

namespace trireme::tasks::inline internal {

// Of a new run: zeros for what routers learn from step to step.
std::vector<checkpoint::Entry> expert_buffers(const model::ModelConfig& config);

}  // namespace trireme::tasks::inline internal
