#include "trireme/tasks/recommend/layers/mlp.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/machine/multiversion.h"

namespace trireme::tasks {
namespace {

constexpr int64_t kSide = 8;  // of a square that is transposed in registers
// A block is transposed into memory of its own. Written there directly, columns a power of two
// apart would push each other out of the cache.
constexpr int64_t kBlockRows = 128, kBlockColumns = 64, kBlockStride = kBlockRows + kSide;

typedef float Vector __attribute__((vector_size(kSide * sizeof(float))));
typedef float LooseVector
    __attribute__((vector_size(kSide * sizeof(float)), aligned(sizeof(float)), may_alias));

// rows[i][j] becomes rows[j][i]: pairs, then pairs of pairs, then halves change places.
TRIREME_INLINE void transpose(Vector (&rows)[kSide]) {
  Vector pairs[kSide], fours[kSide];
#pragma GCC unroll 4
  for (int i = 0; i < kSide; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kSide; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kSide / 2; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

TRIREME_INLINE void square(const ReluProblem& p, int64_t b, int64_t o, float* out) {
  Vector rows[kSide];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSide; ++i) {
    const int64_t at = (b + i) * p.O + o;
    const Vector grad = *reinterpret_cast<const LooseVector*>(p.grad_out + at);
    const Vector y = *reinterpret_cast<const LooseVector*>(p.y + at);
    rows[i] = y <= 0 ? Vector{} : grad;
    *reinterpret_cast<LooseVector*>(p.grad_BO + at) = rows[i];
  }
  transpose(rows);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSide; ++i) {
    *reinterpret_cast<LooseVector*>(out + i * kBlockStride) = rows[i];
  }
}

// The remainder outside the full square blocks.
TRIREME_INLINE void edge(const ReluProblem& p, int64_t b, int64_t b_end, int64_t o, int64_t o_end) {
  for (; b < b_end; ++b) {
    for (int64_t column = o; column < o_end; ++column) {
      const int64_t at = b * p.O + column;
      p.grad_BO[at] = p.y[at] <= 0 ? 0 : p.grad_out[at];
      p.grad_OB[column * p.B + b] = p.grad_BO[at];
    }
  }
}

TRIREME_INLINE void block(const ReluProblem& p, int64_t b, int64_t b_end, int64_t o, int64_t o_end,
                          float* scratch) {
  const int64_t rows = (b_end - b) / kSide * kSide, columns = (o_end - o) / kSide * kSide;
  for (int64_t row = 0; row < rows; row += kSide) {
    for (int64_t column = 0; column < columns; column += kSide) {
      square(p, b + row, o + column, scratch + column * kBlockStride + row);
    }
  }
  for (int64_t column = 0; column < columns; ++column) {
    std::memcpy(p.grad_OB + (o + column) * p.B + b, scratch + column * kBlockStride,
                static_cast<size_t>(rows) * sizeof(float));
  }
  edge(p, b, b + rows, o + columns, o_end);
  edge(p, b + rows, b_end, o, o_end);
}

TRIREME_MULTIVERSION void gradients_of(const ReluProblem& p, int64_t begin, int64_t end) {
  alignas(64) float scratch[kBlockColumns * kBlockStride];
  for (int64_t o = 0; o < p.O; o += kBlockColumns) {
    const int64_t o_end = std::min(o + kBlockColumns, p.O);
    for (int64_t b = begin; b < end; b += kBlockRows) {
      block(p, b, std::min(b + kBlockRows, end), o, o_end, scratch);
    }
  }
}

}  // namespace

void relu_gradients(const ReluProblem& problem, int64_t begin, int64_t end) {
  gradients_of(problem, begin, end);
}

}  // namespace trireme::tasks
