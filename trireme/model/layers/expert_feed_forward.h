// The feed-forward branch of a sparse block: a mixture of experts, each a SwiGLU of its own, and
// the router that chooses among them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/feed_forward.h"

namespace trireme::model::inline internal {

// Scores each token's experts in fp32, whatever the precision.
class Router : public torch::nn::Module {
 public:
  Router(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);

  // In training the auxiliary losses join backward through the weights. A forward that recompute()
  // repeats chooses the experts that it chose first.
  // Shapes:     x_SD [B * T, D], the same on every rank of the tensor axis
  // Comm:       training with balance_loss on a context axis: B * E * 4 bytes all-reduced (fp64: 8)
  // Collective: then every rank of the context axis
  parallel::Routing forward(const at::Tensor& x_SD, const TokenBatch& batch);

  at::Tensor weight;  // [E, D]

 private:
  // The scalar that joins the loss; undefined: none.
  at::Tensor auxiliary_loss(const at::Tensor& logits_SE, const parallel::Routing& routing,
                            const TokenBatch& batch) const;

  ExpertConfig config_;
  parallel::TensorAxis axis_;
  // The experts of forwards that backward will repeat, by (step, first sample).
  std::map<std::pair<int64_t, int64_t>, at::Tensor> chosen_;
};

// The weights of all experts in one tensor each.
class ExpertWeights : public torch::nn::Module {
 public:
  // experts: of this rank; rows: of each one's width that it holds.
  ExpertWeights(int64_t experts, int64_t width, int64_t rows, at::ScalarType dtype);

  at::Tensor gate_proj;  // [e, f, D]
  at::Tensor up_proj;    // [e, f, D]
  at::Tensor down_proj;  // [e, D, f]
};

// Each rank of the expert axis holds some of the experts, and each rank of the tensor axis some
// rows of their width, and of the shared experts'.
class ExpertFeedForward : public torch::nn::Module {
 public:
  ExpertFeedForward(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Adds to the residual stream, after dropout, the sum over a token's experts of weight *
  // expert(x) in the router's order, and the shared experts' result.
  // Shapes:     x, residual [B, T, D], or their rows as the tensor axis holds them -> the same
  // Comm:       that of open_branch(), close_branch(), Router and RowExchange; with shared experts
  //             also that of a FeedForward
  // Collective: every rank of the tensor and expert axes
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch);

  std::shared_ptr<Router> gate;
  std::shared_ptr<ExpertWeights> experts;
  std::shared_ptr<FeedForward> shared_experts;  // null: none
  Dropout dropout;                              // of the sum over the experts
  // Names the shared experts' dropout after `place`.
  void set_dropout(double probability, const std::string& place);

 private:
  parallel::TensorAxis axis_;
  parallel::ExpertAxis expert_axis_;
  int64_t num_experts_;
};

}  // namespace trireme::model::inline internal
