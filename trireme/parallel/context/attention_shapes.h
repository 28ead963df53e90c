// Checks the shapes of attention's operands and separates their heads.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel::inline internal {

// Throws: ConfigError unless q is [B, t, N * H], k and v are [B, t, K * H] of the same dtype, N is
//         a multiple of K, and `split` is over `num_ranks` and gives `rank` t tokens
void check_attention_shapes(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                            const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                            const SequenceSplit& split, int rank, int num_ranks);

// Shapes: [B, t, N * H] -> [B, t, N, H], a view if the last dimension is dense
at::Tensor view_heads(const at::Tensor& x_BtD, int64_t heads);
// Shapes: [B, t, N * H] -> [B, N, t, H], likewise
at::Tensor split_heads(const at::Tensor& x_BtD, int64_t heads);

}  // namespace trireme::parallel::inline internal
