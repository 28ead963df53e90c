// The terms that training adds to its loss so that a router uses all of its experts.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Returns x. Backward also gives `loss`, a scalar, the gradient `scale`: the term scale * loss
// joins whatever loss x leads to, without being passed on to it.
at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss, double scale);

// Each token's scores divided by their sum; zeros when all are zero.
// Shapes: scores [..., E] -> [..., E]
at::Tensor shares_of(const at::Tensor& scores);

// How unevenly each sequence uses its experts, summed over the sequences:
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

// How large the logits are: log(sum of exp(logits))^2, summed over the tokens.
// Shapes: logits_SE [S, E] -> scalar
// Source: Zoph et al. 2022, arXiv:2202.08906, section 3.3
at::Tensor router_z_loss(const at::Tensor& logits_SE);

// How many tokens of each sequence go to each expert.
// Shapes: experts_SK [B * t, k] int64 -> [B, E] of `dtype`
at::Tensor tokens_of_experts(const at::Tensor& experts_SK, int64_t num_sequences,
                             int64_t num_experts, at::ScalarType dtype);

}  // namespace trireme::parallel
