// Attention on one rank: the shapes of its operands, and parts of it that merge into the whole.
// Never communicates.
#pragma once

#include <cstdint>
#include <vector>

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

// Attention of some queries over some keys on this rank, and the merge of such parts into the
// softmax over all keys. Never communicates.
// Source: merge: Milakov & Gimelshein 2018, arXiv:1805.02867, section 3; backward from the
//         log-sum-exp: Dao 2023 (FlashAttention-2), arXiv:2307.08691, section 3.1

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
// These keys' part of the gradients. `whole` has the output and log-sum-exp over all keys.
// Shapes: grad_out and out as q -> each as the tensor whose gradient it is
AttentionGradients attention_backward(const at::Tensor& grad_out_BNtH, const at::Tensor& q_BNtH,
                                      const at::Tensor& k_BKsH, const at::Tensor& v_BKsH,
                                      const PartialAttention& whole, const BlockReach& reach,
                                      const ScoreForm& scores = {});

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

// Tracks which tokens of a result hold values: in each sequence, those before a frontier. The
// result therefore need not be filled before it is written.
class Frontier {
 public:
  explicit Frontier(int64_t num_sequences) : ends_(num_sequences, 0) {}
  // Moves the frontier to the end of `tokens` in `sequences`. Returns true if all of them lay
  // beyond it: write them. Returns false otherwise: add to them. Calls clear(sequences, tokens) for
  // tokens that are now before the frontier but hold no value.
  template <typename Clear>
  bool move(const mesh::Range& sequences, const mesh::Range& tokens, const Clear& clear);

 private:
  std::vector<int64_t> ends_;
};

// Softmax over keys that come in parts: out = sum_i exp(lse_i - lse) out_i, lse = log sum_i
// exp(lse_i). Summed in the order of add(), in accumulation_dtype(); a part that is the whole is
// left as it is.
class OnlineSoftmax {
 public:
  explicit OnlineSoftmax(const at::Tensor& q_BNtH);
  // Adds the block's part. Keeps the part's tensors where it can.
  void add(const AttentionBlock& block, const PartialAttention& part);
  // Adds to each query a key without a value, whose score is that of its head. After all parts.
  void add_sinks(const at::Tensor& sinks_N);

  // For a query that has read no key, out is 0 and lse is -inf.
  at::Tensor out_BNtH();  // laid out [B, t, N, H]; in the part's dtype if one part is the whole
  at::Tensor lse_BNt();

 private:
  void allocate();
  bool move(const mesh::Range& sequences, const mesh::Range& queries);
  void fill();

  std::vector<int64_t> shape_;  // B, N, t, H
  at::TensorOptions options_;
  at::Tensor out_BNtH_;  // undefined until the first add(); a part's dtype while that is the whole
  at::Tensor lse_BNt_;
  Frontier read_;  // queries that have read a key
};

// The sum of blocks' gradients, in the order of add(), in accumulation_dtype().
class BlockSum {
 public:
  // out_BNtH: memory for the sum, laid out [B, t, N, H]; undefined: allocates it.
  explicit BlockSum(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH = {});
  // Adds `part` to `tokens` of `sequences`. Keeps the tensor where it can.
  void add(const mesh::Range& sequences, const mesh::Range& tokens, const at::Tensor& part);
  // Zero where nothing was added. Laid out [B, t, N, H].
  at::Tensor sum_BNtH();
  // The same in another dtype. No pass over the memory if one part is the whole and has it.
  at::Tensor sum_BNtH(at::ScalarType dtype);

 private:
  bool move(const mesh::Range& sequences, const mesh::Range& tokens);

  void widen();

  std::vector<int64_t> shape_;
  at::TensorOptions options_;
  at::Tensor sum_BNtH_;  // undefined until the first add(); a part's dtype while that is the whole
  Frontier added_;
};

}  // namespace trireme::parallel
