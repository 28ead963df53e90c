// Attention of some queries over some keys on this rank, and the merge of such parts into the
// softmax over all keys. Nothing here communicates.
// Source: merge: Milakov & Gimelshein 2018, arXiv:1805.02867, section 3; backward from the
//         log-sum-exp: Dao 2023 (FlashAttention-2), arXiv:2307.08691, section 3.1
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/attention_blocks.h"

namespace trireme::parallel {

// Shapes: x [B, N, t, ...] -> a view of some sequences' tokens
at::Tensor block_of(const at::Tensor& x, const mesh::Range& sequences, const mesh::Range& tokens);

// fp64 in fp64, everything else in fp32.
at::ScalarType accumulation_dtype(at::ScalarType dtype);

struct PartialAttention {
  at::Tensor out_BNtH;  // softmax over the keys of this part
  at::Tensor lse_BNt;   // the logarithm of what the softmax divided by
};
struct AttentionGradients {
  at::Tensor q_BNtH;
  at::Tensor k_BKsH;
  at::Tensor v_BKsH;
};

// Query head n reads kv head n / (N/K); no dimension is 0. On CPUs libtorch's flash kernel (fp64,
// fp32, bf16, fp16), elsewhere composed_attention().
// Shapes: q [B, N, t, H], k and v [B, K, s, H]; causal: t = s -> [B, N, t, H] in q's dtype
//         and [B, N, t] in accumulation_dtype()
PartialAttention attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                           const at::Tensor& v_BKsH, bool is_causal);
// The part of the gradients that these keys give; out and lse are those over all keys.
// Shapes: grad_out and out as q -> each as what it is the gradient of
AttentionGradients attention_backward(const at::Tensor& grad_out_BNtH, const at::Tensor& q_BNtH,
                                      const at::Tensor& k_BKsH, const at::Tensor& v_BKsH,
                                      const PartialAttention& whole, bool is_causal);

// The same out of ATen's operators, for any device and dtype; computes in accumulation_dtype() and
// makes all scores at once. The gradients are in that dtype.
PartialAttention composed_attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                    const at::Tensor& v_BKsH, bool is_causal);
AttentionGradients composed_attention_backward(const at::Tensor& grad_out_BNtH,
                                               const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                               const at::Tensor& v_BKsH,
                                               const PartialAttention& whole, bool is_causal);

// Which tokens of a result hold values: those before a frontier, one for each sequence. So a result
// need not be filled before it is written.
class Frontier {
 public:
  explicit Frontier(int64_t num_sequences) : ends_(num_sequences, 0) {}
  // Moves to the end of `tokens` of `sequences`. True when they all lay behind it, which is where
  // they are to be written; false: they are to be added to. clear(sequences, tokens) is called for
  // what is now before it and would hold no value.
  template <typename Clear>
  bool move(const mesh::Range& sequences, const mesh::Range& tokens, const Clear& clear);

 private:
  std::vector<int64_t> ends_;
};

// Softmax over keys that come in parts: out = sum_i exp(lse_i - lse) out_i, lse = log sum_i
// exp(lse_i), taken in the order of add(), in accumulation_dtype().
class OnlineSoftmax {
 public:
  explicit OnlineSoftmax(const at::Tensor& q_BNtH);
  // Adds what the block's queries read from its keys. Keeps the part's tensors where it can.
  void add(const AttentionBlock& block, const PartialAttention& part);

  // A query that has read no key has out 0 and lse -inf.
  at::Tensor out_BNtH();  // laid out [B, t, N, H]
  at::Tensor lse_BNt();

 private:
  void allocate();
  bool move(const mesh::Range& sequences, const mesh::Range& queries);
  void fill();

  std::vector<int64_t> shape_;  // B, N, t, H
  at::TensorOptions options_;
  at::Tensor out_BNtH_;  // undefined until the first add()
  at::Tensor lse_BNt_;
  Frontier read_;  // queries that have read a key
};

// The sum of blocks' gradients, in the order of add(), in accumulation_dtype().
class BlockSum {
 public:
  // out_BNtH: where the sum is to lie, laid out [B, t, N, H]; undefined: in memory of its own.
  explicit BlockSum(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH = {});
  // `tokens` of `sequences`. Keeps the tensor where it can.
  void add(const mesh::Range& sequences, const mesh::Range& tokens, const at::Tensor& part);
  // Zero where nothing was added. Laid out [B, t, N, H].
  at::Tensor sum_BNtH();

 private:
  bool move(const mesh::Range& sequences, const mesh::Range& tokens);

  std::vector<int64_t> shape_;
  at::TensorOptions options_;
  at::Tensor sum_BNtH_;  // undefined until the first add()
  Frontier added_;
};

}  // namespace trireme::parallel
