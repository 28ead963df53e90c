// The feed-forward branch of a sparse block: a mixture of experts, each a SwiGLU of its own, and
// the router that chooses among them. With model.expert_bias all of them have biases, and with
// model.swiglu_limit the SwiGLU is clamped, as in GPT-OSS.
// Source of both: OpenAI 2025, arXiv:2508.10925
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/experts/router.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/linear.h"
#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/expert/row_exchange.h"

namespace trireme::model {

// The weights of all experts in one tensor each.
class ExpertWeights : public torch::nn::Module {
 public:
  // experts: of this rank; rows: of each one's width that it holds.
  ExpertWeights(int64_t experts, int64_t width, int64_t rows, bool with_biases,
                at::ScalarType dtype);
  // Gives gate and up, which share their A, or down adapters, after all other parameters.
  void add_adapters(const AdapterConfig& lora, bool of_gate_up, bool of_down);

  at::Tensor gate_proj;  // [e, f, D]
  at::Tensor up_proj;    // [e, f, D]
  at::Tensor down_proj;  // [e, D, f]
  // Undefined without biases.
  at::Tensor gate_proj_bias;  // [e, f]
  at::Tensor up_proj_bias;    // [e, f]
  at::Tensor down_proj_bias;  // [e, D]
  // Of adapters; undefined without.
  at::Tensor gate_up_A;  // [e, r, D]
  at::Tensor gate_B;     // [e, f, r]
  at::Tensor up_B;       // [e, f, r]
  at::Tensor down_A;     // [e, r, f]
  at::Tensor down_B;     // [e, D, r]
  double adapter_scale = 1;

 private:
  // The parameter `name` of a module of its own: "down_proj.lora_A.weight".
  at::Tensor add_factor(const std::string& name, at::IntArrayRef shape);
};

// Each rank of the expert axis holds some of the experts, and each rank of the tensor axis some
// rows of their width, and of the shared experts'.
class ExpertFeedForward : public torch::nn::Module {
 public:
  // layer: the block's number in the whole model.
  ExpertFeedForward(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                    int64_t layer);
  // Adds to the residual stream, after dropout, the sum over a token's experts of weight *
  // expert(x) in the router's order, and the shared experts' result, with model.shared_gate times
  // sigmoid(shared_expert_gate x).
  // Shapes:     x, residual [B, T, D], or their rows as the tensor axis holds them; residual
  //             undefined: none -> the same
  // Comm:       that of open_branch(), close_branch(), Router and RowExchange; in chunks
  //             RowExchange's forward once more in backward; with shared experts also that of a
  //             FeedForward; with replicas ExpertReplicas::copies_of() of each stack, and
  //             sum_gradients() in backward, of every chunk
  // Collective: every rank of the tensor and expert axes
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch);

  std::shared_ptr<Router> gate;
  std::shared_ptr<ExpertWeights> experts;
  std::shared_ptr<FeedForward> shared_experts;  // null: none
  std::shared_ptr<Linear> shared_expert_gate;   // [1, D]; null without model.shared_gate
  Dropout dropout;                              // of the sum over the experts
  // Names the shared experts' dropout after `place`.
  void set_dropout(double probability, const std::string& place);
  // Drops nothing from now on. Returns what it dropped the sum with.
  Dropout take_dropout();

 private:
  // residual plus the shared experts' result.
  at::Tensor add_shared(const at::Tensor& x, const at::Tensor& residual,
                        const TokenBatch& batch) const;
  // What the experts compute with: gate_proj, up_proj and down_proj, and if there are biases also
  // theirs, [e, F, 1]; then the A of gate and up and both their Bs, and A and B of down, of those
  // that have adapters. The ranks of the tensor axis add up their results, so down_proj's bias is
  // zero on all but the first, and each adds its part of down's adapter.
  // Comm: in backward, that of replicated_weight() for down_proj's bias and B, and gate and up's A
  std::vector<at::Tensor> stacks() const;
  // The first of stacks() that are biases, and of the adapter of stack `first`; 0: there are none.
  size_t place_of_biases() const;
  size_t place_of_adapter(size_t first) const;
  // Copies of the busiest experts, while it trains.
  // stacks: of stacks()
  parallel::GroupedOptions copied_experts(const std::vector<at::Tensor>& stacks,
                                          const TokenBatch& batch) const;
  // x times the stacks first, ..., first + count - 1 of each row's expert, plus its biases and what
  // its adapters add.
  // stacks, options: as run_experts() has them
  std::vector<at::Tensor> multiply(const at::Tensor& x, std::span<const at::Tensor> stacks,
                                   size_t first, size_t count, const parallel::ExpertRows& rows,
                                   const parallel::GroupedOptions& options) const;
  // The experts' results for some tokens, added with their weights.
  // in: x_SD, weights_SK, and those of stacks()
  // options: with the copies of each of the stacks, if there are replicas
  // while_tokens_travel, before_products: run then; empty: nothing does
  at::Tensor run_experts(parallel::RowExchange& exchange, const std::vector<at::Tensor>& in,
                         const parallel::GroupedOptions& options,
                         const std::function<void()>& while_tokens_travel,
                         const std::function<void()>& before_products) const;
  // The same for all tokens, ExpertAxis::chunk_tokens at a time; the next ones travel while the
  // experts compute. An expert's rank holds at most p * chunk * k rows of them at once, whichever
  // experts they go to.
  // experts_SK: the choice as options.replicas count it
  at::Tensor run_in_chunks(const at::Tensor& x_SD, const at::Tensor& experts_SK,
                           const at::Tensor& weights_SK, const std::vector<at::Tensor>& stacks,
                           const parallel::GroupedOptions& options) const;

  parallel::TensorAxis axis_;
  parallel::ExpertAxis expert_axis_;
  int64_t num_experts_;
  double swiglu_limit_;  // 0: SwiGLU
  double swiglu_alpha_;
};

}  // namespace trireme::model
