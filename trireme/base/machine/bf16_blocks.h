// Products of bf16 blocks, summed in fp32 by a processor's matrix unit (AMX), and the form in which
// the unit reads a right operand. Numbers are the bits of bf16.
#pragma once

#include <cstdint>

namespace trireme {

// Whether this processor has the unit, and libtorch a kernel for it.
bool has_bf16_blocks();

// A matrix in rows; `stride` is the distance of two rows in elements.
template <typename Number>
struct Rows {
  Number* data = nullptr;
  int64_t stride = 0;

  Rows at(int64_t row, int64_t column = 0) const { return {data + row * stride + column, stride}; }
};

// A right operand B [K, N] as [K/2, N] pairs: those of rows 2k and 2k + 1 of a column lie side by
// side.
using Pairs = Rows<uint32_t>;

// Makes the pairs of B. With an odd K, the last pairs have a zero.
void pack_rows(Rows<const uint16_t> b, int64_t K, int64_t N, Pairs to);
// From B's transpose, [N, K].
void pack_transpose(Rows<const uint16_t> transpose, int64_t K, int64_t N, Pairs to);
// The reverse: [2 K, N] from [K, N] pairs.
void unpack_rows(Rows<const uint32_t> pairs, int64_t K, int64_t N, Rows<uint16_t> to);
// [M, N] of fp32 -> [N, M] of bf16, rounded to the nearest.
void narrow_transpose(Rows<const float> from, int64_t M, int64_t N, Rows<uint16_t> to);

// One thread's products. While it lives, the thread must not multiply by other means: the unit is
// set up for these. libtorch keeps the code of every shape, so use few shapes.
class BlockProducts {
 public:
  BlockProducts() = default;
  ~BlockProducts();
  BlockProducts(const BlockProducts&) = delete;
  BlockProducts& operator=(const BlockProducts&) = delete;

  // c = a b, or c += a b with `add`. Only where has_bf16_blocks().
  // Shapes: a [M, K], b pairs of [K, N] -> c [M, N]; K even
  void operator()(int64_t M, int64_t N, int64_t K, Rows<const uint16_t> a, Pairs b, Rows<float> c,
                  bool add) const;
};

}  // namespace trireme
