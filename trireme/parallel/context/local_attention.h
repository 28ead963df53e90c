// Attention on one rank: the shapes of its operands, and parts of it that merge into the whole
// (attention_sums.h). Never communicates.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/attention_blocks.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// Checks the shapes of attention's operands and separates their heads.

// keys: of the keys' sequences, which may be the queries' own
// Throws: ConfigError unless q is [B, t, N * H], k and v are [B, s, K * H] of the same dtype, N is
//         a multiple of K, and the splits are over `num_ranks` and give `rank` t and s tokens
void check_attention_shapes(const at::Tensor& q_BtD, const at::Tensor& k_BsG,
                            const at::Tensor& v_BsG, int64_t heads, int64_t kv_heads,
                            const SequenceSplit& split, const SequenceSplit& keys, int rank,
                            int num_ranks);

// Shapes: [B, t, N * H] -> [B, t, N, H], a view if the last dimension is dense
at::Tensor view_heads(const at::Tensor& x_BtD, int64_t heads);
// Shapes: [B, t, N * H] -> [B, N, t, H], likewise
at::Tensor split_heads(const at::Tensor& x_BtD, int64_t heads);

// Attention of some queries over some keys on this rank.
// Source: backward from the log-sum-exp: Dao 2023 (FlashAttention-2), arXiv:2307.08691, section 3.1

// Uninitialised memory for [B, N, t, H], laid out [B, t, N, H] like the activations.
at::Tensor empty_by_token(at::IntArrayRef shape, const at::TensorOptions& options);

// Shapes: x [B, N, t, ...] -> a view of some tokens of some sequences
at::Tensor block_of(const at::Tensor& x, const mesh::Range& sequences, const mesh::Range& tokens);

// fp64 for fp64, fp32 for every other dtype.
at::ScalarType accumulation_dtype(at::ScalarType dtype);

struct PartialAttention {
  at::Tensor out_BNtH;  // softmax over the keys of this part
  at::Tensor lse_BNt;   // logarithm of the softmax's divisor
};
// Memory for gradients of keys and values in accumulation_dtype(); undefined: none.
struct KeyRoom {
  at::Tensor k_BKsH{};
  at::Tensor v_BKsH{};
};
struct AttentionGradients {
  at::Tensor q_BNtH;
  at::Tensor k_BKsH;
  at::Tensor v_BKsH;
  at::Tensor bias_Nts{};  // of ScoreForm::bias_Nts, summed over sequences; undefined without one
};

// Query head n reads kv head n / (N/K). No dimension may be 0. Uses bf16_attention() where it can
// compute it, libtorch's flash kernel on CPUs otherwise, and composed_attention() elsewhere, at the
// edges of windows, and for soft caps and biases, which no kernel has.
// Shapes: q [B, N, t, H], k and v [B, K, s, H]; causal: t = s -> [B, N, t, H] in q's dtype and [B,
//         N, t] in accumulation_dtype()
PartialAttention attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                           const at::Tensor& v_BKsH, const BlockReach& reach,
                           const ScoreForm& scores = {});
// These keys' part of the gradients. `whole` has the output and log-sum-exp over all keys. Writes
// those of k and v to `room` if bf16_attention() computes them, and then returns its tensors.
// Shapes: grad_out and out as q -> each as the tensor whose gradient it is
AttentionGradients attention_backward(const at::Tensor& grad_out_BNtH, const at::Tensor& q_BNtH,
                                      const at::Tensor& k_BKsH, const at::Tensor& v_BKsH,
                                      const PartialAttention& whole, const BlockReach& reach,
                                      const ScoreForm& scores = {}, const KeyRoom& room = {});

// The same made from ATen's operators, for any device and dtype. Computes in accumulation_dtype()
// and makes all scores at once. The gradients have that dtype.
PartialAttention composed_attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                    const at::Tensor& v_BKsH, const BlockReach& reach,
                                    const ScoreForm& scores = {});
AttentionGradients composed_attention_backward(const at::Tensor& grad_out_BNtH,
                                               const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                               const at::Tensor& v_BKsH,
                                               const PartialAttention& whole,
                                               const BlockReach& reach,
                                               const ScoreForm& scores = {});

}  // namespace trireme::parallel
