// Shared by both passes of bf16_attention.h: operands by head, sizes of blocks, a thread's memory.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/bf16_blocks.h"

namespace trireme::parallel::internal {

using Bits = Rows<const uint16_t>;

// Blocks of scores have this many rows, and columns in steps of as many up to kWidth, whatever the
// lengths of the sequences: libtorch keeps the code of every product it has met.
inline constexpr int64_t kRows = 64;
inline constexpr int64_t kWidth = 256;

inline int64_t round_up(int64_t n) { return (n + kRows - 1) / kRows * kRows; }

// The rows of one head of [B, N, t, H].
Bits rows_of(const at::Tensor& x_BNtH, int64_t sequence, int64_t head);
Rows<uint16_t> rows_to(const at::Tensor& x_BNtH, int64_t sequence, int64_t head);
Rows<float> floats_to(const at::Tensor& x_BNtH, int64_t sequence, int64_t head);  // of fp32

// The tensor itself if a head's row is dense.
at::Tensor with_dense_rows(const at::Tensor& x_BNtH);

// A thread's memory, cut into arrays that begin at a cache line.
class Scratch {
 public:
  explicit Scratch(int64_t bytes);
  template <typename Number>
  Rows<Number> matrix(int64_t rows, int64_t columns) {
    return {reinterpret_cast<Number*>(take(bytes_of<Number>(rows, columns))), columns};
  }
  template <typename Number>
  static int64_t bytes_of(int64_t rows, int64_t columns) {
    constexpr int64_t kLine = 64;
    return (rows * columns * static_cast<int64_t>(sizeof(Number)) + kLine - 1) / kLine * kLine;
  }

 private:
  uint8_t* take(int64_t bytes);

  at::Tensor memory_;
  int64_t used_ = 0;
};

// The `count` rows from `first`, followed by zeros up to kRows: in place if none are missing, or
// else in `spare`.
Bits whole_rows(Bits x, int64_t first, int64_t count, int64_t width, Rows<uint16_t> spare);

// A matrix of any number of columns in panels of kWidth columns, so that all have one stride.
template <typename Number>
struct Panels {
  Number* data = nullptr;
  int64_t rows = 0;

  // The panel that begins at `column`, a multiple of kWidth; or a column within it.
  Rows<Number> at(int64_t column) const {
    return Rows<Number>{data + column / kWidth * rows * kWidth, kWidth}.at(0, column % kWidth);
  }
  static int64_t num_columns(int64_t columns) { return (columns + kWidth - 1) / kWidth * kWidth; }
};

// Calls use(first, count) for each panel of n columns.
template <typename Use>
void for_each_panel(int64_t n, const Use& use) {
  for (int64_t first = 0; first < n; first += kWidth)
    use(first, n - first < kWidth ? n - first : kWidth);
}

// The pairs of x^T [H, n], followed by columns of zeros up to a multiple of kRows.
void pack_columns(Bits x, int64_t n, int64_t H, const Panels<uint32_t>& to);
// The pairs of x [n, H], followed by rows of zeros likewise.
void pack_whole_rows(Bits x, int64_t n, int64_t H, Pairs to);

// Shapes and operands of one call.
struct Problem {
  at::Tensor q, k, v;
  bool is_causal;
  float scale;  // of q k^T
  int64_t t = q.size(2), s = k.size(2), H = q.size(3);
  int64_t group = q.size(1) / k.size(1);  // query heads that read one kv head
};

}  // namespace trireme::parallel::internal
