// Attention of bf16 on processors with a matrix unit for it. Never communicates.
// Source: Dao 2023 (FlashAttention-2), arXiv:2307.08691, algorithms 1 and 2
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {

// Whether the two functions below can compute it: bf16 on this CPU, with an even head width.
bool has_bf16_attention(const at::Tensor& q_BNtH);

// As attention() and attention_backward() in local_attention.h; sums in fp32, results laid out [B,
// t, N, H]. The bits of a head depend on neither the number of heads nor of threads.
// scale:  factor of q k^T
// room:   if defined, gets the gradients of k and v, in fp32 and without a rounding to bf16
// Memory: a thread holds 4 H bytes per key forward; backward 12 H + 8 bytes per query and 10 H per
// key
// Threads: forward as many as query heads; backward as many as kv heads
PartialAttention bf16_attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                const at::Tensor& v_BKsH, bool is_causal, double scale);
AttentionGradients bf16_attention_backward(const at::Tensor& grad_out_BNtH,
                                           const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                           const at::Tensor& v_BKsH, const PartialAttention& whole,
                                           bool is_causal, double scale, const KeyRoom& room = {});

}  // namespace trireme::parallel
