// What parameters start as. A value is a function of (seed, parameter name, global element index),
// so every layout draws the same ones and a shard draws its part alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"
#include "trireme/mesh/layout.h"
#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

// One rule: normal(0, std), or the constant `value` when std is 0.
struct Initialiser {
  double std = 0;
  double value = 0;
  bool operator==(const Initialiser&) const = default;
};

// The rule of a family that has none of its own (docs/models.md): biases 0, norms 1, matrices and
// embeddings normal(0, 0.02), output projections of residual branches normal(0, 0.02 / sqrt(2 L)).
// `name` says which of these a parameter is: ".bias" ends it; "norm." or "ln_" is a norm's;
// ".o_proj.", ".down_proj." or ".c_proj." is an output projection's.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3
Initialiser default_initialiser(const ModelConfig& config, std::string_view name);

// The rule of the parameter `name` in the family that `config` names.
// Throws: ConfigError on an unknown family
Initialiser initialiser_of(const ModelConfig& config, std::string_view name);

// Fills `local`, which holds the block `box` of a tensor of `global_shape`, with its part of
// normal(0, std). Drawn in fp64 and rounded to the dtype, so fp32 is the rounding of fp64.
// Shapes: local: box.size, contiguous
// Throws: InternalError when local, box and global_shape do not fit together
void fill_normal(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                 RandomKey key, double std);

// Gives `local`, the block `box` of the parameter `name` of `global_shape`, its initial values.
void initialise(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                const ModelConfig& config, uint64_t seed, std::string_view name);

// Every parameter of `module`: what coordinate `rank` of the plan's tensor axis holds of it.
void initialise(torch::nn::Module& module, const ModelPlan& plan, int rank, uint64_t seed);

}  // namespace trireme::model
