// Initial values of parameters. A value is a function of (seed, parameter name, global element
// index), so every layout draws the same values and a shard draws only its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/weight_codes.h"
#include "trireme/base/random/random.h"
#include "trireme/mesh/layout.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/data/shard.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

// One rule: normal(0, std), or the constant `value` when std is 0.
struct Initialiser {
  double std = 0;
  double value = 0;
  bool over_inputs = false;  // divide std by the square root of the number of columns
  // The parameter holds codes or scales of a weight with such values; kRun: it does not.
  WeightFormat format = WeightFormat::kRun;
  bool operator==(const Initialiser&) const = default;
};

// The rule for families that have none of their own (docs/reference/models.md): biases 0, norms 1,
// matrices and embeddings normal(0, 0.02), output projections of residual branches
// normal(0, 0.02 / sqrt(2 L)). The kind of a parameter follows from `name`: a bias ends in ".bias"
// or "_bias", a norm contains "norm." or "ln_", an output projection contains ".o_proj",
// ".down_proj" or ".c_proj".
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3
Initialiser default_initialiser(const ModelConfig& config, std::string_view name);

// The rule for the parameter `name` in the family that `config` names. Of an adapter, B begins with
// zeros and A with the variance of the package peft, 1 / (3 * columns). Codes and scales are those
// of the weight that they are of.
// Throws: ConfigError for an unknown family
Initialiser initialiser_of(const ModelConfig& config, std::string_view name);

// A tensor to register as a parameter: `value` everywhere, or within a WithoutMemory no memory.
at::Tensor new_parameter(at::IntArrayRef shape, at::ScalarType dtype, double value = 0);

// While it exists, this thread builds parameters without memory on `device`: a rank that will own a
// part of each never has one whole. Without a device it changes nothing.
class WithoutMemory {
 public:
  explicit WithoutMemory(std::optional<at::Device> device);
  ~WithoutMemory();
  WithoutMemory(const WithoutMemory&) = delete;
  WithoutMemory& operator=(const WithoutMemory&) = delete;

 private:
  std::optional<at::Device> before_;
};

// Fills `local` with its part of normal(0, std). `local` is the block `box` of a tensor of
// `global_shape`. Values are drawn in fp64 and rounded to the dtype, so fp32 values are rounded
// fp64 values.
// Shapes: local: box.size, contiguous
// Throws: InternalError when local, box and global_shape do not fit together
void fill_normal(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                 RandomKey key, double std);

// Initialises `local`, the block `box` of the parameter `name` of `global_shape`.
void initialise(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                const Initialiser& rule, uint64_t seed, std::string_view name);

// Initialises every parameter of `module` that has memory with the part that a rank of the plan's
// axes holds.
void initialise(torch::nn::Module& module, const ModelPlan& plan, AxisRanks ranks, uint64_t seed);
// The same by a rule that does not depend on a family.
using InitialiserRule = std::function<Initialiser(std::string_view name)>;
void initialise(torch::nn::Module& module, const ModelPlan& plan, AxisRanks ranks, uint64_t seed,
                const InitialiserRule& rule);
// The same for this rank's shards of parameters, wherever other axes or ZeRO cut them.
void initialise(std::span<const parallel::Shard> shards, uint64_t seed,
                const InitialiserRule& rule);

}  // namespace trireme::model
