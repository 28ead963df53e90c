#include "trireme/base/machine/bf16_product.h"

#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

// Small integers: exact in bf16, and every sum of them is in fp32.
float number(int64_t row, int64_t column) {
  return static_cast<float>((row * 7 + column * 5) % 13 - 6);
}

std::vector<uint16_t> numbers(int64_t rows, int64_t columns, int64_t stride, bool is_transposed) {
  std::vector<uint16_t> bits(static_cast<size_t>((is_transposed ? columns : rows) * stride));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      bits[is_transposed ? j * stride + i : i * stride + j] = narrow<uint16_t>(number(i, j));
  return bits;
}

TEST(Bf16Product, EveryFormIsTheSumOfItsTerms) {
  if (!has_bf16_product()) GTEST_SKIP() << "this processor does not multiply bf16";
  for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 1, 1}, {3, 5, 7}, {64, 33, 130}, {17, 256, 64}}) {
    for (const bool turns_a : {false, true}) {
      for (const bool turns_b : {false, true}) {
        const int64_t a_stride = (turns_a ? M : K) + 2, b_stride = (turns_b ? K : N) + 3;
        const auto a = numbers(M, K, a_stride, turns_a), b = numbers(K, N, b_stride, turns_b);
        std::vector<float> c(static_cast<size_t>(M * (N + 1)), 0.5F);
        for (const bool adds : {false, true}) {
          bf16_product(M, N, K, {{a.data(), a_stride}, turns_a}, {{b.data(), b_stride}, turns_b},
                       {c.data(), N + 1}, adds);
        }
        for (int64_t m = 0; m < M; ++m) {
          for (int64_t n = 0; n < N; ++n) {
            float sum = 0;
            for (int64_t k = 0; k < K; ++k) sum += number(m, k) * number(k, n);
            ASSERT_EQ(c[m * (N + 1) + n], 2 * sum) << M << " x " << N << " x " << K;
          }
          ASSERT_EQ(c[m * (N + 1) + N], 0.5F);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme
