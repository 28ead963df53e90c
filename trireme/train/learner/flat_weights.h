// Weights of a model as flat tensors, which learners exchange.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/train/config/outer_config.h"
#include "trireme/train/parallel/parallel_model.h"

namespace trireme::train {

// Each parameter's fragment, by its name. The same on every rank.
std::map<std::string, int> fragments_by_name(const ParallelModel& model, const OuterConfig& outer);

// The tensors one after the other.
// Shapes: any, n elements in all -> [n]
at::Tensor flattened(const std::vector<at::Tensor>& tensors, const at::TensorOptions& options);
// The part of a flat tensor from `begin` on that is for `like`, in its shape; moves `begin` behind
// it.
at::Tensor take(const at::Tensor& flat, const at::Tensor& like, int64_t& begin);

}  // namespace trireme::train
