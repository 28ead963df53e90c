// What the training loop sees of a model: tokens and targets in, (sum, count) out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/unit.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

using parallel::kIgnoredTarget;
using parallel::Loss;

// Where the sequences of a forward are in training; it says what dropout draws.
struct TrainingPlace {
  int64_t step = 0;            // counted from 0
  int64_t first_sequence = 0;  // of the step's global batch
};

// What a part of a model computes with.
struct PartInput {
  at::Tensor tokens_BT;  // [B, T] int64
  at::Tensor hidden{};   // what the part before passed on; undefined for the one that embeds
  // [B, T] int64: tokens attend to those of the same number alone; undefined: to their sequence
  at::Tensor documents_BT{};
  // Empty for evaluation and generation, which drop nothing.
  std::optional<TrainingPlace> training{};
};

// What a part of a model passes on.
struct PartOutput {
  at::Tensor hidden;         // [B, T, D], or its rows as the tensor axis holds them
  at::Tensor head_weight{};  // [v, D], where a tied head is in another part than the embedding
};

// A model, or the part of one that a pipeline stage has. Tokens and targets are those of whole
// sequences; with a context axis each rank takes its own.
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

  // The part's layers.
  // Collective: every rank of the tensor and context axes, with the same input but for hidden
  virtual PartOutput forward_part(const PartInput& in) = 0;
  // The sum of cross-entropies of this rank's tokens, and their number, from the last part's hidden
  // states. head_weight: of a tied head whose embedding is in another part.
  // Collective: as forward_part(); the same on all ranks of the tensor axis
  virtual Loss head_loss(const at::Tensor& hidden, const at::Tensor& targets_BT,
                         const at::Tensor& head_weight = {}) = 0;
  // How many of the targets this rank's loss counts.
  virtual int64_t num_targets(const at::Tensor& targets_BT) const = 0;

  // Of a whole model.
  // Shapes: tokens_BT, targets_BT [B, T] int64 -> scalar sum of cross-entropies, and their number
  Loss loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT,
            const std::optional<TrainingPlace>& training = {}) {
    return head_loss(forward_part({.tokens_BT = tokens_BT, .training = training}).hidden,
                     targets_BT);
  }
  // Of a whole model on one rank.
  // Shapes: tokens_BT [B, T] int64 -> logits_BTV [B, T, V]
  virtual at::Tensor logits(const at::Tensor& tokens_BT) = 0;
};

// Builds this rank's part of the family `config` names, in `dtype`, every parameter drawn from the
// counter-based generator keyed by (seed, parameter name, index in the whole parameter); dropout
// draws with the same seed.
// Throws: ConfigError when the config is not valid
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed,
                                          at::ScalarType dtype, const ModelAxes& axes = {},
                                          ModelPart part = {});

}  // namespace trireme::model
