// The router of a sparse block: chooses each token's experts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/expert/routing.h"

namespace trireme::model::inline internal {

// What a token's experts are, and how much each of them counts.
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
  // [E] fp32: added to the scores for the choice alone; undefined without router_bias_rate.
  // Source: Wang et al. 2024, arXiv:2408.15664
  at::Tensor e_score_correction_bias;
  // [E] int64: the assignments of the step before; undefined unless the loss balances the batch.
  at::Tensor assignments;

 private:
  at::Tensor logits(const at::Tensor& x_SD, const TokenBatch& batch) const;
  // Summed over the batch's sequences, before its factor.
  at::Tensor balance_loss(const parallel::Routing& routing, const TokenBatch& batch) const;
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
  // Of forwards that backward will repeat, by (step, first sample).
  std::map<std::pair<int64_t, int64_t>, Chosen> chosen_;
};

// The routers in `module`, in its order.
std::vector<Router*> routers_of(torch::nn::Module& module);

}  // namespace trireme::model::inline internal
