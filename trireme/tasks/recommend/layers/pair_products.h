// The interaction of a DLRM: the dot product of each pair of a sample's vectors, and its loops,
// sample by sample.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::tasks {

// A sample's vectors are `dense`, if defined, followed by the blocks of `width` in `embedded`.
// Returns `dense`, followed by the dot products of vectors 1 and 0, 2 and 0, 2 and 1, 3 and 0, ...
// On CPUs in fp32 and fp64, the bits depend neither on the number of threads nor on the other
// samples. The gradient cannot be differentiated.
// Shapes: dense_BD [B, D], embedded_BW [B, M D] -> [B, D + N (N - 1) / 2] with N = M + 1;
//         without dense_BD [B, N (N - 1) / 2] with N = M
// Source: Naumov et al. 2019, arXiv:1906.00091, section 2.1.3
at::Tensor pair_products(const at::Tensor& dense_BD, const at::Tensor& embedded_BW, int64_t width);

constexpr int64_t num_pairs(int64_t N) { return N * (N - 1) / 2; }

// N vectors per sample: that of `dense`, if present, and the blocks of `embedded`.
template <typename scalar>
struct PairProblem {
  int64_t N = 0, D = 0;
  bool has_dense = false;
  const scalar* dense = nullptr;     // [B, D]
  const scalar* embedded = nullptr;  // [B, M, D]
  const scalar* grad_out = nullptr;  // [B, out_width()]
  scalar* out = nullptr;             // [B, out_width()]
  scalar* grad_dense = nullptr;      // [B, D]
  scalar* grad_embedded = nullptr;   // [B, M, D]

  int64_t num_dense() const { return has_dense ? 1 : 0; }
  int64_t out_width() const { return num_dense() * D + num_pairs(N); }
  // Vector i of sample b, within two tensors of the shapes of `dense` and `embedded`.
  template <typename pointer>
  pointer vector_in(pointer of_dense, pointer of_embedded, int64_t b, int64_t i) const {
    if (i < num_dense()) return of_dense + b * D;
    return of_embedded + (b * (N - num_dense()) + i - num_dense()) * D;
  }
};

// Number of elements of scratch memory that the functions below need per thread.
int64_t pair_scratch_size(const PairProblem<float>& problem);
int64_t pair_scratch_size(const PairProblem<double>& problem);

// Fills in `out` for samples [begin, end).
void multiply_pairs(const PairProblem<float>& p, int64_t begin, int64_t end, float* scratch);
void multiply_pairs(const PairProblem<double>& p, int64_t begin, int64_t end, double* scratch);

// Fills in `grad_dense` and `grad_embedded` for samples [begin, end).
void pair_gradients(const PairProblem<float>& p, int64_t begin, int64_t end, float* scratch);
void pair_gradients(const PairProblem<double>& p, int64_t begin, int64_t end, double* scratch);

}  // namespace trireme::tasks
