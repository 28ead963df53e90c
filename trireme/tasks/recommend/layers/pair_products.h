// The interaction of a DLRM: the dot product of each pair of a sample's vectors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::tasks::inline internal {

// A sample's vectors are `dense`, if defined, followed by the blocks of `width` in `embedded`.
// Returns `dense`, followed by the dot products of vectors 1 and 0, 2 and 0, 2 and 1, 3 and 0, ...
// On CPUs in fp32 and fp64, the bits depend neither on the number of threads nor on the other
// samples. The gradient cannot be differentiated.
// Shapes: dense_BD [B, D], embedded_BW [B, M D] -> [B, D + N (N - 1) / 2] with N = M + 1;
//         without dense_BD [B, N (N - 1) / 2] with N = M
// Source: Naumov et al. 2019, arXiv:1906.00091, section 2.1.3
at::Tensor pair_products(const at::Tensor& dense_BD, const at::Tensor& embedded_BW, int64_t width);

}  // namespace trireme::tasks::inline internal
