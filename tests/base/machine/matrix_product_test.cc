#include "trireme/base/machine/matrix_product.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme {
namespace {

using harness::assert_close;

at::Tensor narrow_values(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return at::randn({rows, columns}, at::kDouble).to(dtype);
}

// Sums of K terms in fp32: K roundings of 2^-24 at most, relative to the sum of magnitudes, which
// is within sqrt(K) times 4 of the largest sum of these random numbers.
double bound(int64_t K) { return 4 * std::pow(static_cast<double>(K), 1.5) * 0x1p-24; }

TEST(MatrixProduct, RowsOrColumnsOfEitherOperandMayBeDense) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {1, 1, 1}, {3, 5, 7}, {64, 33, 130}, {0, 4, 3}, {4, 0, 3}, {4, 3, 0}}) {
      const at::Tensor a = narrow_values(M, K, dtype), b = narrow_values(K, N, dtype);
      const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
      for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
        for (const at::Tensor& right : {b, b.t().contiguous().t()}) {
          const at::Tensor out = at::full({M, N}, NAN, at::kFloat);
          multiply_wide(out, left, right);
          assert_close(out.to(at::kDouble), exact, bound(K + 1), 0, "product");
          multiply_wide(out, left, right, 1);
          assert_close(out.to(at::kDouble), exact * 2, bound(K + 1), 0, "sum");
        }
      }
    }
  }
}

class MatrixProductInParts : public testing::Test {
 protected:
  void SetUp() override {
    at::globalContext().setFloat32MatmulPrecision("high");
    if (!splits_factors()) GTEST_SKIP() << "no matrix unit for bf16 here";
  }
  void TearDown() override { at::globalContext().setFloat32MatmulPrecision("highest"); }
};

// Three terms of 2^-16 are left out of each product of two numbers. The sums round 3 K times.
TEST_F(MatrixProductInParts, IsWithinSixteenBitsOfTheSumOfMagnitudes) {
  at::manual_seed(4);
  for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 1, 1}, {3, 5, 7}, {64, 33, 130}, {0, 4, 3}, {4, 3, 0}}) {
    const at::Tensor a = at::randn({M, K}), b = at::randn({K, N}), c = at::randn({M, N});
    const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
    const at::Tensor exact = at::mm(wide(a), wide(b));
    const double unit = 3 * 0x1p-16 + 3 * static_cast<double>(K + 2) * 0x1p-24;
    // Factors of 8 bits would miss it.
    const at::Tensor bound = (at::mm(wide(a).abs(), wide(b).abs()) + wide(c).abs()) * unit;
    for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
      for (const at::Tensor& right : {b, b.t().contiguous().t()}) {
        const at::Tensor out = at::full({M, N}, NAN);
        multiply(out, left, right);
        EXPECT_TRUE((wide(out) - exact).abs().le(bound).all().item<bool>());
        multiply_and_add(out, c, left, ProductFactor(right.t()).t());
        EXPECT_TRUE((wide(out) - exact - wide(c)).abs().le(bound).all().item<bool>());
      }
    }
  }
}

TEST_F(MatrixProductInParts, ARowHasTheSameBitsAmongOthers) {
  at::manual_seed(5);
  const at::Tensor a = at::randn({200, 96}), b = at::randn({96, 80});
  const at::Tensor all = at::empty({200, 80});
  multiply(all, a, b);
  for (const int64_t rows : {32, 33, 100}) {
    const at::Tensor some = at::empty({rows, 80});
    multiply(some, a.narrow(0, 200 - rows, rows), b);
    harness::assert_same_bits(some, all.narrow(0, 200 - rows, rows), "rows");
  }
}

TEST_F(MatrixProductInParts, NumbersThatAreNotFiniteAreNotHidden) {
  for (const float value : {INFINITY, NAN}) {
    const at::Tensor out = at::empty({2, 2});
    multiply(out, at::ones({2, 1}), at::full({1, 2}, value));
    EXPECT_FALSE(out.isfinite().any().item<bool>()) << out;
  }
}

TEST(MatrixProduct, AWeightsGradientIsRoundedOnce) {
  at::manual_seed(2);
  for (const auto& [S, F, D] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 1, 1}, {7, 5, 3}, {300, 96, 64}, {0, 4, 3}}) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
      const at::Tensor grad = narrow_values(S, F, dtype), x = narrow_values(S, D, dtype);
      const at::Tensor product = weight_product(at::empty({F, D}, dtype), grad, x);
      EXPECT_EQ(product.scalar_type(), dtype);
      const double rounding = dtype == at::kBFloat16 ? 0x1p-8 : 0;
      assert_close(product.to(at::kDouble), at::mm(grad.to(at::kDouble).t(), x.to(at::kDouble)),
                   rounding + bound(S + 1), 0, "gradient");
    }
  }
}

// On processors with a matrix unit only fp16 is widened.
TEST(MatrixProduct, WidenedFactorsRoundOnce) {
  at::manual_seed(6);
  EXPECT_TRUE(widens_factors(at::zeros({1}, at::kHalf)));
  EXPECT_FALSE(widens_factors(at::zeros({1}, at::kFloat)));
  for (const auto& [dtype, unit] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kHalf, 0x1p-11}, {at::kBFloat16, 0x1p-8}}) {
    if (!widens_factors(at::zeros({1}, dtype))) continue;
    for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {1, 1, 1}, {3, 5, 7}, {64, 33, 130}, {0, 4, 3}, {4, 3, 0}}) {
      const at::Tensor a = narrow_values(M, K, dtype), b = narrow_values(K, N, dtype),
                       c = narrow_values(M, N, dtype), row = narrow_values(1, N, dtype)[0];
      const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
      for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
        // Rows within wider ones, as those of a chunk are.
        const at::Tensor out = at::full({M, N + 3}, NAN, a.options()).narrow(1, 0, N);
        multiply(out, left, b);
        assert_close(out.to(at::kDouble), exact, unit + bound(K + 1), 0, "product");
        out.copy_(c);
        multiply(out, left, ProductFactor(b.t()).t(), 1);
        assert_close(out.to(at::kDouble), exact + c.to(at::kDouble), unit + bound(K + 1), 0, "sum");
        multiply_and_add(out, row, left, b);
        assert_close(out.to(at::kDouble), exact + row.to(at::kDouble), unit + bound(K + 1), 0,
                     "addend");
      }
    }
  }
}

// As the gradients of sums are.
TEST(MatrixProduct, ABroadcastGradientIsReadAsItIs) {
  at::manual_seed(3);
  const at::Tensor x = narrow_values(30, 8, at::kBFloat16);
  for (const at::Tensor& grad : {narrow_values(1, 12, at::kBFloat16).expand({30, 12}),
                                 narrow_values(30, 1, at::kBFloat16).expand({30, 12}),
                                 narrow_values(1, 1, at::kBFloat16).expand({30, 12})}) {
    const at::Tensor weight = at::empty({12, 8}, at::kBFloat16);
    harness::assert_same_bits(weight_product(weight, grad, x),
                              weight_product(weight, grad.contiguous(), x), "gradient");
  }
}

TEST(MatrixProduct, NarrowedIsLibtorchsRounding) {
  const at::Tensor x = at::randn({33, 17});
  const at::Tensor out = at::empty(x.sizes(), at::kBFloat16);
  for (const double factor : {1.0, 0.25}) {
    narrow_into(out, x, factor);
    harness::assert_same_bits(out, (x * factor).to(at::kBFloat16), "scaled");
  }
  for (const at::Tensor& laid_out : {x, x.t(), x.narrow(1, 3, 5)}) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const at::Tensor narrow = rounded(laid_out, dtype);
      harness::assert_same_bits(narrow, laid_out.to(dtype), "rounded");
      harness::assert_same_bits(widened(narrow), laid_out.to(dtype).to(at::kFloat), "widened");
    }
  }
}

}  // namespace
}  // namespace trireme
