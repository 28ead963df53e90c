// What the training loop sees of a model: tokens and targets in, (sum, count) out.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/config.h"
#include "trireme/model/recompute.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

// Targets equal to this are left out of sum and count.
inline constexpr int64_t kIgnoredTarget = -100;

// A loss is a sum and the number of its terms, never a mean: sums add up over microbatches and
// ranks.
struct Loss {
  at::Tensor sum;     // scalar fp64 in every precision, differentiable, backward once
  int64_t count = 0;  // targets that counted
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual const ModelConfig& config() const = 0;
  // The parameters live here, named as in docs/models.md.
  virtual torch::nn::Module& module() = 0;
  // The parts that are run as a whole, in the order of forward: embedding, blocks, norm, head. A
  // tied head runs the embedding's unit again.
  virtual std::vector<parallel::Unit> units() const = 0;
  // From now on every unit's forward goes through `run`.
  virtual void run_units_with(parallel::RunUnit run) = 0;
  // What the blocks compute again in backward; nothing at first.
  virtual void set_recompute(const RecomputePlan& plan) = 0;
  // Shapes: tokens_BT, targets_BT [B, T] int64 -> scalar sum of cross-entropies, and their number
  virtual Loss loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT) = 0;
  // Shapes: tokens_BT [B, T] int64 -> logits_BTV [B, T, V]
  virtual at::Tensor logits(const at::Tensor& tokens_BT) = 0;
};

// Builds the family `config` names, in `dtype`, every parameter drawn from the counter-based
// generator keyed by (seed, parameter name, element index).
// Throws: ConfigError when the config is not valid
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed,
                                          at::ScalarType dtype);

}  // namespace trireme::model
