#include "trireme/base/machine/bf16_blocks.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

// Small integers: exact in bf16, and every sum of them is in fp32.
std::vector<uint16_t> integers(int64_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (size_t i = 0; i < bits.size(); ++i)
    bits[i] = narrow<uint16_t>(static_cast<float>(i * 7 % 13) - 6);
  return bits;
}

TEST(Bf16Blocks, PairsHoldTwoRowsOfAColumn) {
  for (const int64_t K : {1, 2, 5, 16, 33, 40}) {
    for (const int64_t N : {1, 3, 16, 50}) {
      const std::vector<uint16_t> b = integers(K * N);
      std::vector<uint16_t> transpose(b.size());
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < N; ++n) transpose[n * K + k] = b[k * N + n];
      // Wider than the matrix, and what is beside it stays.
      const int64_t stride = N + 3, pairs = (K + 1) / 2;
      std::vector<uint32_t> rows(pairs * stride, 7), columns = rows;
      pack_rows({b.data(), N}, K, N, {rows.data(), stride});
      pack_transpose({transpose.data(), K}, K, N, {columns.data(), stride});
      EXPECT_EQ(columns, rows) << K << " x " << N;
      for (int64_t k = 0; k < 2 * pairs; ++k) {
        for (int64_t n = 0; n < N; ++n) {
          const uint32_t expected = k < K ? b[k * N + n] : 0;
          EXPECT_EQ(rows[k / 2 * stride + n] >> (k % 2 * 16) & 0xffff, expected);
        }
      }
      EXPECT_EQ(rows[N], 7U);
      std::vector<uint16_t> again(2 * pairs * N);
      unpack_rows({rows.data(), stride}, pairs, N, {again.data(), N});
      again.resize(b.size());
      EXPECT_EQ(again, b);
    }
  }
}

TEST(Bf16Blocks, ATransposeIsRoundedOnce) {
  for (const auto& [M, N] : {std::pair<int64_t, int64_t>{1, 1}, {5, 40}, {33, 17}, {64, 256}}) {
    const at::Tensor x = at::randn({M, N});
    const at::Tensor y = at::zeros({N, M}, at::kBFloat16);
    narrow_transpose({x.const_data_ptr<float>(), N}, M, N, {stored_out<at::BFloat16>(y), M});
    EXPECT_TRUE(at::equal(y, x.t().to(at::kBFloat16))) << M << " x " << N;
  }
}

TEST(Bf16Blocks, AProductIsTheSumOfItsTerms) {
  if (!has_bf16_blocks()) GTEST_SKIP() << "this processor has no matrix unit for bf16";
  for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {16, 16, 2}, {16, 48, 8}, {64, 256, 64}, {32, 24, 30}, {48, 64, 256}}) {
    const std::vector<uint16_t> a = integers(M * K), b = integers(K * N);
    std::vector<uint32_t> pairs(K / 2 * N);
    pack_rows({b.data(), N}, K, N, {pairs.data(), N});
    std::vector<float> c(M * N, 0.5F);
    const BlockProducts multiply;
    for (const bool add : {false, true, true}) {
      multiply(M, N, K, {a.data(), K}, {pairs.data(), N}, {c.data(), N}, add);
    }
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += widen(a[m * K + k]) * widen(b[k * N + n]);
        ASSERT_EQ(c[m * N + n], 3 * sum) << M << " x " << N << " x " << K;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
