// The router of a sparse block: chooses each token's experts, and counts them in a training step:
// one row of numbers per sparse block. Rows add up over microbatches and ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/expert/routing.h"

namespace trireme::model {

// One block's row. All but the first are sums over tokens.
struct RoutingCounts {
  std::span<const double> assignments;  // [E]: those that chose each expert, dropped ones too
  double tokens = 0;
  double dropped = 0;       // assignments without room
  double entropy = 0;       // of the token's scores divided by their sum, in nats
  double balance_loss = 0;  // before its factor, of the token's sequence or batch
  double z_loss = 0;        // before its factor
  double copied = 0;        // assignments to experts that the token's rank had copies of

  // The largest number of assignments over the mean, minus 1. 0: all experts have as many.
  // Source: Wang et al. 2024, arXiv:2408.15664, section 4.1 (MaxVio)
  double max_violation() const;
};

inline int64_t num_routing_counts(int64_t num_experts) { return num_experts + 6; }
// The row must outlive the result.
RoutingCounts routing_counts(std::span<const double> row);
// The part of the table that belongs to the block with this number among the sparse ones.
template <typename T>
std::span<T> row_of_block(std::span<T> table, int64_t block, int64_t num_experts) {
  const auto size = static_cast<size_t>(num_routing_counts(num_experts));
  return table.subspan(static_cast<size_t>(block) * size, size);
}

// The experts of each token and their weights.
struct ChosenExperts {
  at::Tensor experts_SK;  // [S, k] int64; -1: the expert has no room
  at::Tensor weights_SK;  // [S, k], with gradients for the router
};

// Scores each token's experts in fp32, whatever the precision.
class Router : public torch::nn::Module {
 public:
  // layer: the block's number in the whole model.
  Router(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

  // In training the auxiliary losses join backward through the weights. A forward that recompute()
  // repeats chooses the experts that it chose first.
  // Shapes:     x_SD [B * T, D], the same on every rank of the tensor axis
  // Comm:       training on a context axis, with balance_loss over sequences: B * E * 4 bytes
  //             all-reduced (fp64: 8); with a capacity: B * T * k * 8 bytes, T of the whole
  //             sequence, twice when it drops by probability
  // Collective: then every rank of the context axis
  ChosenExperts forward(const at::Tensor& x_SD, const TokenBatch& batch);

  // Adds what this rank counted since the last call to the block's row of the whole model's table.
  // Ranks of the tensor axis have the same tokens; the first one counts them.
  void take_counts(std::span<double> table);
  // Learns the table of a step whose weights have changed, summed over all ranks.
  void use_counts(std::span<const double> table);

  // The experts with the most tokens in the step before, ExpertAxis::replicas of them. None before
  // the first step of a run or of one that continues.
  const std::vector<int64_t>& busiest() const { return busiest_; }

  at::Tensor weight;  // [E, D]
  at::Tensor bias;    // [E], of the logits; undefined without model.expert_bias
  // [E] fp32: added to the scores for choosing experts, not to their weights. Undefined unless
  // has_router_bias().
  // Source: Wang et al. 2024, arXiv:2408.15664
  at::Tensor e_score_correction_bias;
  // [E] int64: the assignments of the step before; undefined unless the loss balances the batch.
  at::Tensor assignments;

 private:
  at::Tensor logits(const at::Tensor& x_SD, const TokenBatch& batch) const;
  // Summed over the batch's sequences, before its factor.
  at::Tensor balance_loss(const parallel::Routing& routing, const TokenBatch& batch) const;
  // Hands out the choices, and goes on with others where the listener has some.
  void replay(parallel::Routing& routing, const at::Tensor& logits_SE,
              const TokenBatch& batch) const;
  // Without room for more tokens than the capacity.
  at::Tensor with_room(const parallel::Routing& routing, const TokenBatch& batch) const;
  // Losses may be undefined.
  void count(const parallel::Routing& routing, const at::Tensor& kept_SK,
             const at::Tensor& balance_loss, const at::Tensor& z_loss);

  ExpertConfig config_;
  parallel::TensorAxis axis_;
  int64_t block_;  // number among the sparse ones
  int64_t num_busiest_;
  std::vector<int64_t> busiest_;
  at::Tensor counted_;  // its row, on the device of the last batch
  struct Chosen {
    at::Tensor experts_SK;
    at::Tensor kept_SK;  // with room
  };
  // Choices of forward passes that the backward pass will recompute, by (step, first sample).
  std::map<std::pair<int64_t, int64_t>, Chosen> chosen_;
};

// The routers in `module`, in its order.
std::vector<Router*> routers_of(torch::nn::Module& module);

}  // namespace trireme::model
