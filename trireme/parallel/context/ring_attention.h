// Attention of tokens that lie on different ranks, causal or not. Keys and values go round the ring
// while each rank computes with those it has.
// Source: Liu et al. 2023, arXiv:2310.01889, section 3; balance: Brandon et al. 2023,
//         arXiv:2311.09431, section 3
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/context/attention_reach.h"
#include "trireme/parallel/context/ring_pass.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// softmax(q k^T / sqrt(H)) v per head, over the tokens of the whole sequence that `reach` allows.
// Query head n reads kv head n / (N/K); kv heads are sent unexpanded. The bits are the same in
// every run: a query merges the pieces of ranks r, r - 1, r - 2, ... (mod p), and the gradients of
// rank r's keys are summed in the order r + 1, r + 2, ..., r, in fp32 at least. In fp32 and fp64
// the bits differ from those on one rank, because sums are cut elsewhere.
// Shapes:     q_BtD [B, t, N * H], k_BtG and v_BtG [B, t, K * H], sharded on T, t being this rank's
//             tokens in `split` -> [B, t, N * H]
// Comm:       sent, with n = 2 * B * K * H * itemsize bytes of keys and values per token: forward n
//             * (T - tokens of the next rank); backward as much, and n * (T - t) for gradients
//             (bf16 and fp16: 2 n, sent as fp32). Even split: (p-1)/p * T of each. Within a host
//             the next rank reads these bytes in place, without a copy.
// Collective: every rank of `group`, in forward and in backward: each rank's loss must depend on
//             its output, even if that is empty
// Throws:     ConfigError when shapes, heads, split and group do not fit together
at::Tensor ring_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG, const at::Tensor& v_BtG,
                          int64_t heads, int64_t kv_heads, const SequenceSplit& split,
                          comm::Communicator& group, const AttentionReach& reach = {},
                          RingOptions options = {});

// The same on whole sequences, without any communication.
// Shapes: q_BTD [B, T, N * H], k_BTG and v_BTG [B, T, K * H] -> [B, T, N * H]
at::Tensor whole_attention(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                           const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads,
                           const AttentionReach& reach = {});

}  // namespace trireme::parallel
