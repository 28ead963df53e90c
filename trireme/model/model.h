// A model as the training loop sees it: tokens and targets in, (sum, count) out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/parts.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/unit.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"
#include "trireme/parallel/tensor/linear_distillation.h"
#include "trireme/parallel/tensor/top_outputs.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

using parallel::kIgnoredTarget;
using parallel::Loss;
using parallel::LossFunction;

// The input of a part of a model.
struct PartInput {
  at::Tensor tokens_BT;  // [B, T] int64
  at::Tensor hidden{};   // output of the previous part; undefined for the part that embeds
  // [B, T] int64: tokens attend only to tokens with the same number. If undefined, they attend to
  // their whole sequence.
  at::Tensor documents_BT{};
  // Empty in evaluation and generation, which drop nothing.
  std::optional<TrainingPlace> training{};
  // [B, U] int64: the tokens that a decoder reads. Only with one.
  at::Tensor decoder_tokens_BU{};
  NamedTensors carried{};  // from earlier parts, see CarriedTensor
  // [B, M, 3, image_size, image_size] of a floating type, normalised: the images of each sequence,
  // in the order of their tokens. A sequence with fewer has anything behind them. Only for a part
  // that embeds, of a model with a vision tower; undefined: no sequence has any.
  at::Tensor images{};
  // In generation: the texts whose next tokens these are, [1, n]. See TokenBatch::cached.
  std::shared_ptr<const CachedTokens> cached{};
  // Whether a tied head's weight is among the outputs of the part that embeds.
  bool sends_head = true;
};

// The output of a part of a model.
struct PartOutput {
  // [B, T, D], or its rows as the tensor axis holds them. Undefined if the next part does not
  // continue this one's, see Family::continues_at().
  at::Tensor hidden;
  at::Tensor head_weight{};  // [v, D], defined when the head is tied and in another part
  NamedTensors carried{};    // for later parts, whether they read them or not
};

// Of texts between whose classes a model decides.
struct ClassLoss {
  Loss of_texts;
  at::Tensor logits_BC;  // fp32 or fp64, without a gradient
};

// Works with a model's last layer, whose weights are whole while it runs.
using HeadUse = std::function<at::Tensor(const parallel::LinearHead& head)>;

// A model, or the part of one that a pipeline stage has. Tokens and targets are those of whole
// sequences. With a context axis, each rank takes its own.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual const ModelConfig& config() const = 0;
  // Holds the parameters, named as in docs/reference/models.md.
  virtual torch::nn::Module& module() = 0;
  // The parts that run as a whole, in the order of forward: embedding, blocks, norm, head. A tied
  // head runs the embedding's unit again.
  virtual std::vector<parallel::Unit> units() const = 0;
  // From now on, every unit's forward goes through `run`.
  virtual void run_units_with(parallel::RunUnit run) = 0;
  // Sets what the blocks recompute in backward. Before the first call they recompute nothing.
  virtual void set_recompute(const RecomputePlan& plan) = 0;

  // Adds the counts of this part's routers since the last call to the table of the whole model,
  // which has num_routing_counts() numbers per sparse block.
  virtual void take_routing_counts(std::span<double> table) = 0;
  // Updates the routers with the counts of a step, summed over all ranks. Called when its weights
  // change.
  virtual void use_routing_counts(std::span<const double> table) = 0;

  // Runs the part's layers.
  // Collective: every rank of the tensor and context axes, with the same input except hidden
  // Throws:     ConfigError when tokens_BT is not [B, T] int64 or T exceeds sequence_length, and so
  //             for the decoder's tokens; when image tokens are not as many as images take
  virtual PartOutput forward_part(const PartInput& in) = 0;
  // The sum of cross-entropies of this rank's tokens, and their number, from the last part's hidden
  // states. head_weight: the weight of a tied head whose embedding is in another part. loss: what
  // to compute of this rank's [B, t] tokens instead, see CrossEntropyOptions.
  // Collective: as forward_part(). The result is the same on all ranks of the tensor axis.
  virtual Loss head_loss(const at::Tensor& hidden, const at::Tensor& targets_BT,
                         const at::Tensor& head_weight = {}, const LossFunction& loss = {}) = 0;
  // The sum of cross-entropies of this rank's texts, and their number, with model.classes. Of the
  // context axis, the first rank has them.
  // Shapes:     hidden of the last part; labels_B [B] int64, of all texts of the batch
  // Collective: as forward_part(). The result is the same on all ranks of the tensor axis.
  virtual ClassLoss class_loss(const at::Tensor& hidden, const at::Tensor& labels_B) = 0;
  // The same tokens' distance from a teacher with the same vocabulary, see linear_distillation().
  // of_teacher: its head on these tokens. options: the temperature and the weight.
  virtual parallel::DistillationLoss distillation_loss(
      const at::Tensor& hidden, const at::Tensor& targets_BT, const at::Tensor& head_weight,
      const parallel::LinearHead& of_teacher, const parallel::DistillationOptions& options) = 0;
  // The same with what a teacher says of the tokens of whole sequences, [B, T, k] and [B, T].
  virtual parallel::DistillationLoss distillation_loss(
      const at::Tensor& hidden, const at::Tensor& targets_BT, const at::Tensor& head_weight,
      const parallel::TopOutputs& of_teacher, const parallel::DistillationOptions& options) = 0;
  // What a teacher says of this rank's tokens, see linear_top_outputs(). Zeros for the tokens of
  // other ranks of the context axis.
  // Shapes:     tokens_BT [B, T] -> tokens and log_p [B, T, k], log_rest [B, T]
  // Collective: as forward_part(). The result is the same on all ranks of the tensor axis.
  virtual parallel::TopOutputs top_outputs(const at::Tensor& hidden, const at::Tensor& tokens_BT,
                                           const at::Tensor& head_weight, int64_t top_k,
                                           double temperature) = 0;
  // The last layer with the rows of the whole vocabulary, without an input.
  // Comm:       on the tensor axis of p ranks, from each to all its rows
  // Collective: every rank of the tensor axis
  virtual parallel::LinearHead whole_head() = 0;
  // This rank's part of another model's last layer with the same vocabulary: its rows, and its
  // tokens of x.
  // Shapes: whole.x [B, T, D] of whole sequences, whole.w_vD [V, D]
  virtual parallel::LinearHead own_part(const parallel::LinearHead& whole) const = 0;
  // Returns what `use` makes of the last layer and the last part's hidden states.
  // Collective: as forward_part(), and as `use`
  virtual at::Tensor run_head(const at::Tensor& hidden, const at::Tensor& head_weight,
                              const HeadUse& use) = 0;
  // The logits of the token behind each text that a forward has read, of the last part.
  // Shapes:     hidden [1, n, D], of the tokens of `read`, which are whole on each rank of the
  //             tensor axis -> [runs, V] fp64 on the CPU
  // Comm:       on the tensor axis of p ranks, from each to all runs * V / p logits
  // Collective: as forward_part()
  virtual at::Tensor next_logits(const at::Tensor& hidden, const CachedTokens& read,
                                 const at::Tensor& head_weight = {}) = 0;
  // What the model says of tokens that are known, of the last part: log p of each target, the
  // likeliest token in its place, and log p of that, in nats.
  // Shapes:     hidden [1, n, D] as in next_logits(); targets_n [n] int64, kIgnoredTarget where
  //             nothing is asked -> [n, 3] fp64 on the CPU, 0 where nothing is asked
  // Comm:       on the tensor axis of p ranks, 32 bytes per target from each to all
  // Collective: as forward_part()
  virtual at::Tensor token_scores(const at::Tensor& hidden, const at::Tensor& targets_n,
                                  const at::Tensor& head_weight = {}) = 0;
  // The number of targets that this rank's loss counts.
  virtual int64_t num_targets(const at::Tensor& targets_BT) const = 0;

  // The loss of a whole model. A decoder reads token 0, and then the targets but the last, with 0
  // for those that are ignored.
  // Shapes: tokens_BT, targets_BT [B, T] int64, or with a decoder targets [B, U] -> scalar sum of
  //         cross-entropies, and their number
  Loss loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT,
            const std::optional<TrainingPlace>& training = {});
  // The logits of a whole model on one rank.
  // Shapes: tokens_BT [B, T], and decoder_tokens_BU [B, U] of a decoder, int64 -> logits_BTV [B, T,
  //         V], or [B, U, V]
  // Throws: InternalError when this is a part of a model or shares it with other ranks
  virtual at::Tensor logits(const at::Tensor& tokens_BT, const at::Tensor& decoder_tokens_BU = {},
                            const at::Tensor& images = {}) = 0;
};

// Builds this rank's part of a model of the family that `config` names, in `dtype`. The
// counter-based generator draws every parameter, keyed by (seed, parameter name, index in the whole
// parameter). Dropout draws with the same seed.
// Throws: ConfigError when the config is invalid or the axes cannot share the model
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed,
                                          at::ScalarType dtype, const ModelAxes& axes = {},
                                          ModelPart part = {});

}  // namespace trireme::model
