#include "trireme/tasks/recommend/layers/pair_products.h"

#include <algorithm>

#include "trireme/base/machine/multiversion.h"

namespace trireme::tasks {
namespace {

// A tile of sums stays in registers: rows times vectors of the widest kind.
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kProductRows = 8;
constexpr int64_t kGradientRows = 4, kGradientVectors = 4;

// The compiler splits it where registers are narrower.
template <typename scalar>
struct Vector {
  typedef scalar Aligned __attribute__((vector_size(kVectorBytes)));
  typedef scalar Loose
      __attribute__((vector_size(kVectorBytes), aligned(sizeof(scalar)), may_alias));
  static constexpr int64_t kSize = kVectorBytes / static_cast<int64_t>(sizeof(scalar));
};
template <typename scalar>
TRIREME_INLINE const auto& vector_at(const scalar* x) {
  return *reinterpret_cast<const typename Vector<scalar>::Loose*>(x);
}
template <typename scalar>
TRIREME_INLINE auto& vector_at(scalar* x) {
  return *reinterpret_cast<typename Vector<scalar>::Loose*>(x);
}

constexpr int64_t round_to(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

// A thread's memory for one sample: X transposed, and a tile of products; or X, and the matrix of
// the products' gradients.
template <typename scalar>
TRIREME_INLINE int64_t columns_of(const PairProblem<scalar>& p) {
  return round_to(p.N, std::max(Vector<scalar>::kSize, kProductRows));
}
template <typename scalar>
TRIREME_INLINE int64_t padded_width_of(const PairProblem<scalar>& p) {
  return round_to(p.D, Vector<scalar>::kSize);
}
template <typename scalar>
TRIREME_INLINE int64_t scratch_size_of(const PairProblem<scalar>& p) {
  return std::max(columns_of(p) * (p.D + kProductRows),
                  p.N * padded_width_of(p) + round_to(p.N, kGradientRows) * p.N);
}

// products[r][j] = sum over d, in order, of x[d][i + r] * x[d][j], for kProductRows rows and the
// columns of one vector.
template <typename scalar>
TRIREME_INLINE void product_tile(const scalar* x_DN, int64_t D, int64_t columns, int64_t i,
                                 int64_t j, scalar* products) {
  typename Vector<scalar>::Aligned sums[kProductRows] = {};
  for (int64_t d = 0; d < D; ++d) {
    const scalar* const x = x_DN + d * columns;
    const typename Vector<scalar>::Aligned right = vector_at(x + j);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kProductRows; ++r) sums[r] += x[i + r] * right;
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kProductRows; ++r) vector_at(products + r * columns + j) = sums[r];
}

// Rows of a triangle follow each other. Whole vectors are written while they fit: what is beyond
// a row is overwritten by the next one.
template <typename scalar>
TRIREME_INLINE void pack_row(const scalar* row, int64_t i, int64_t N, scalar* pairs) {
  constexpr int64_t kSize = Vector<scalar>::kSize;
  int64_t j = 0;
  for (; j < i && num_pairs(i) + j + kSize <= num_pairs(N); j += kSize) {
    vector_at(pairs + num_pairs(i) + j) = vector_at(row + j);
  }
  for (; j < i; ++j) pairs[num_pairs(i) + j] = row[j];
}

template <typename scalar>
TRIREME_INLINE void products_body(const PairProblem<scalar>& p, int64_t begin, int64_t end,
                                  scalar* scratch) {
  const int64_t N = p.N, D = p.D, columns = columns_of(p);
  scalar* const x_DN = scratch;
  scalar* const tile = scratch + D * columns;
  std::fill_n(x_DN, D * columns, scalar{0});
  for (int64_t b = begin; b < end; ++b) {
    for (int64_t n = 0; n < N; ++n) {
      const scalar* const vector = p.vector_in(p.dense, p.embedded, b, n);
      for (int64_t d = 0; d < D; ++d) x_DN[d * columns + n] = vector[d];
    }
    scalar* out = p.out + b * p.out_width();
    if (p.has_dense) out = std::copy_n(p.dense + b * D, D, out);
    for (int64_t i = 0; i < N; i += kProductRows) {
      const int64_t last = std::min(i + kProductRows, N) - 1;
      for (int64_t j = 0; j < last; j += Vector<scalar>::kSize) {
        product_tile(x_DN, D, columns, i, j, tile);
      }
      for (int64_t row = i; row <= last; ++row) pack_row(tile + (row - i) * columns, row, N, out);
    }
  }
}

// grad_x[r][d] = sum over j, in order, of weights[r][j] * x[j][d], for kGradientRows rows and the
// columns of kVectors vectors.
template <int64_t kVectors, typename scalar>
TRIREME_INLINE void gradient_tile(
    const scalar* weights, const scalar* x, int64_t N, int64_t padded_width,
    typename Vector<scalar>::Aligned (&sums)[kGradientRows][kVectors]) {
  for (int64_t j = 0; j < N; ++j, x += padded_width) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kGradientRows; ++r) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[r][v] += weights[r * N + j] * vector_at(x + v * Vector<scalar>::kSize);
      }
    }
  }
}

// The columns from d on of kGradientRows rows from i on, of sample b.
template <int64_t kVectors, typename scalar>
TRIREME_INLINE void set_gradients(const PairProblem<scalar>& p, int64_t b, int64_t i, int64_t d,
                                  const scalar* weights_NN, const scalar* x_ND) {
  constexpr int64_t kSize = Vector<scalar>::kSize;
  typename Vector<scalar>::Aligned sums[kGradientRows][kVectors] = {};
  gradient_tile<kVectors>(weights_NN + i * p.N, x_ND + d, p.N, padded_width_of(p), sums);
  for (int64_t r = 0; r < std::min(kGradientRows, p.N - i); ++r) {
    scalar* const out = p.vector_in(p.grad_dense, p.grad_embedded, b, i + r) + d;
    for (int64_t v = 0; v < kVectors; ++v) {
      if (d + (v + 1) * kSize <= p.D) {
        vector_at(out + v * kSize) = sums[r][v];
      } else {
        for (int64_t lane = 0; d + v * kSize + lane < p.D; ++lane) {
          out[v * kSize + lane] = sums[r][v][lane];
        }
      }
    }
  }
}

template <typename scalar>
TRIREME_INLINE void gradients_body(const PairProblem<scalar>& p, int64_t begin, int64_t end,
                                   scalar* scratch) {
  const int64_t N = p.N, D = p.D, padded_width = padded_width_of(p);
  scalar* const x_ND = scratch;
  scalar* const weights_NN = scratch + N * padded_width;
  std::fill_n(scratch, scratch_size_of(p), scalar{0});  // and so is the matrix's diagonal
  for (int64_t b = begin; b < end; ++b) {
    for (int64_t n = 0; n < N; ++n)
      std::copy_n(p.vector_in(p.dense, p.embedded, b, n), D, x_ND + n * padded_width);
    const scalar* const grad_out = p.grad_out + b * p.out_width();
    const scalar* pair = grad_out + p.num_dense() * D;
    for (int64_t i = 0; i < N; ++i) {
      for (int64_t j = 0; j < i; ++j, ++pair) {
        weights_NN[i * N + j] = *pair;
        weights_NN[j * N + i] = *pair;
      }
    }
    for (int64_t i = 0; i < N; i += kGradientRows) {
      int64_t d = 0;
      constexpr int64_t kStep = kGradientVectors * Vector<scalar>::kSize;
      for (; d + kStep <= padded_width; d += kStep) {
        set_gradients<kGradientVectors>(p, b, i, d, weights_NN, x_ND);
      }
      for (; d < padded_width; d += Vector<scalar>::kSize) {
        set_gradients<1>(p, b, i, d, weights_NN, x_ND);
      }
    }
    if (!p.has_dense) continue;
    scalar* const grad_dense = p.grad_dense + b * D;
    for (int64_t d = 0; d < D; ++d) grad_dense[d] += grad_out[d];
  }
}

#define TRIREME_PAIR_KERNELS(scalar)                                                               \
  TRIREME_MULTIVERSION void products_of(const PairProblem<scalar>& p, int64_t begin, int64_t end,  \
                                        scalar* scratch) {                                         \
    products_body(p, begin, end, scratch);                                                         \
  }                                                                                                \
  TRIREME_MULTIVERSION void gradients_of(const PairProblem<scalar>& p, int64_t begin, int64_t end, \
                                         scalar* scratch) {                                        \
    gradients_body(p, begin, end, scratch);                                                        \
  }
TRIREME_PAIR_KERNELS(float)
TRIREME_PAIR_KERNELS(double)
#undef TRIREME_PAIR_KERNELS

}  // namespace

#define TRIREME_PAIR_FUNCTIONS(scalar)                                                             \
  int64_t pair_scratch_size(const PairProblem<scalar>& p) { return scratch_size_of(p); }           \
  void multiply_pairs(const PairProblem<scalar>& p, int64_t begin, int64_t end, scalar* scratch) { \
    products_of(p, begin, end, scratch);                                                           \
  }                                                                                                \
  void pair_gradients(const PairProblem<scalar>& p, int64_t begin, int64_t end, scalar* scratch) { \
    gradients_of(p, begin, end, scratch);                                                          \
  }
TRIREME_PAIR_FUNCTIONS(float)
TRIREME_PAIR_FUNCTIONS(double)
#undef TRIREME_PAIR_FUNCTIONS

}  // namespace trireme::tasks
