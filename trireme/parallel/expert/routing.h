// Routing: the experts of each token and their weights, how many tokens an expert takes, and the
// terms of the loss that keep experts in use.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Routing: the experts of each token and their weights.
// Sources: Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961 (Switch: one
//          expert per token); Jiang et al. 2024, arXiv:2401.04088 (Mixtral: softmax over the
//          chosen); DeepSeek-AI 2024, arXiv:2412.19437, section 2.1.2 (sigmoid, bias, groups)

enum class RouterScore { kSoftmax, kSigmoid };

struct RouterOptions {
  int64_t experts_per_token = 2;  // k
  RouterScore score = RouterScore::kSoftmax;
  bool normalise = true;  // a token's weights are divided by their sum
  double scale = 1;       // of the weights
  // The experts form `groups` equal groups. A token uses at most `groups_per_token` of them: those
  // whose two best experts have the largest sum.
  int64_t groups = 1;
  int64_t groups_per_token = 1;
};

struct Routing {
  at::Tensor experts_SK;  // [S, k] int64, the best first
  at::Tensor weights_SK;  // [S, k], with gradients for the logits
  at::Tensor scores_SE;   // [S, E], with gradients: of all experts
};

// Chooses the k experts with the largest score + bias, and among equal ones those with the lowest
// index. Weights depend only on the scores, not on the bias.
// Shapes: logits_SE [S, E] in fp32 or fp64, S may be 0; bias_E [E], undefined: none; chosen_SK: the
//         experts of the same routing before, which are kept, undefined: none
// Source: Wang et al. 2024, arXiv:2408.15664 (the bias)
Routing route(const at::Tensor& logits_SE, const at::Tensor& bias_E, const RouterOptions& options,
              const at::Tensor& chosen_SK = {});

// The indices of the k largest values of each row, the largest first. Of equal values the lowest
// index comes first, on every device. NaN counts as the largest.
// Shapes: x_SE [S, E] -> [S, k] int64
at::Tensor largest_indices(const at::Tensor& x_SE, int64_t k);

// Expert capacity: the number of tokens of a sequence that an expert takes. Further tokens bypass
// the expert.
// Sources: Lepikhin et al. 2020, arXiv:2006.16668, section 3.2 (the capacity of a group of tokens:
//          here a sequence, so that no layout changes what is dropped); Fedus et al. 2021,
//          arXiv:2101.03961, section 2.2 (the factor)
enum class DropBy { kPosition, kProbability };

// The tokens of one sequence that an expert takes: ceil(factor * T * k / E).
int64_t expert_capacity(double factor, int64_t T, int64_t experts_per_token, int64_t num_experts);

// The assignments that their experts have room for. kPosition keeps an expert's first tokens,
// kProbability those with the largest weights, and of equal ones the first.
// Shapes: experts_BTK [B, T, k] int64, whole sequences, a token's experts being different ones;
//         weights_BTK [B, T, k], read for kProbability only -> experts_BTK, -1 where dropped
at::Tensor drop_over_capacity(const at::Tensor& experts_BTK, const at::Tensor& weights_BTK,
                              int64_t num_experts, int64_t capacity, DropBy by);

// The terms that training adds to its loss so that a router uses all of its experts.

// Returns x. Backward also gives `loss`, a scalar, the gradient `scale`: the term scale * loss
// joins whatever loss x leads to, without being passed on to it.
at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss, double scale);

// Each token's scores divided by their sum; zeros when all are zero.
// Shapes: scores [..., E] -> [..., E]
at::Tensor shares_of(const at::Tensor& scores);

// The imbalance of each sequence's use of the experts, summed over the sequences:
//   E / (k T) * sum over e of tokens_e * (mean over t of share_te),
// where share is a token's score divided by the sum of its scores. It is 1 for a sequence whose
// tokens are spread evenly and at most E / k. Gradients flow through the shares. A router cannot
// lower it by making all of a token's scores tiny (Megatron-LM#1545): only a score of zero has no
// share.
// Shapes: scores_BtE [B, t, E], this rank's tokens of each sequence; tokens_BE [B, E], how many
//         tokens of the whole sequence go to each expert; T tokens in a sequence -> scalar, the
//         part of this rank's tokens
// Sources: Fedus et al. 2021, arXiv:2101.03961, section 2.2 (for a batch); DeepSeek-AI 2024,
//          arXiv:2412.19437, section 2.1.2 (for a sequence, k experts)
at::Tensor balance_loss(const at::Tensor& scores_BtE, const at::Tensor& tokens_BE, int64_t T,
                        int64_t experts_per_token);

// The size of the logits: log(sum of exp(logits))^2, summed over the tokens.
// Shapes: logits_SE [S, E] -> scalar
// Source: Zoph et al. 2022, arXiv:2202.08906, section 3.3
at::Tensor router_z_loss(const at::Tensor& logits_SE);

// How many tokens of each sequence go to each expert.
// Shapes: experts_SK [B * t, k] int64 -> [B, E] of `dtype`
at::Tensor tokens_of_experts(const at::Tensor& experts_SK, int64_t num_sequences,
                             int64_t num_experts, at::ScalarType dtype);

}  // namespace trireme::parallel
