#include "trireme/parallel/learner/residual.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/one_thread.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// Numbers of very different sizes, step by step others.
at::Tensor difference(int64_t count, int step, double decades) {
  return (harness::values({count}, 0.71 + 0.07 * step, 1) *
          at::exp(harness::values({count}, 1.37 + step, 2.3 * decades)))
      .to(at::kFloat);
}

TEST(Residual, WithNearestRoundingLosesNothingAtAll) {
  const harness::OneThread one_thread;
  constexpr int64_t kCount = 5000;
  for (const double decades : {0.0, 2.0, 18.0}) {
    for (const WireCode code :
         {WireCode::kFloat32, WireCode::kInt8, WireCode::kInt4, WireCode::kInt2}) {
      for (const double kept : {1.0, 0.1}) {
        const WireForm form{.code = code, .kept = kept};
        Residual residual(kCount);
        for (int step = 0; step < 10; ++step) {
          const at::Tensor x = difference(kCount, step, decades);
          const at::Tensor corrected = x + residual.value();
          const at::Tensor sent = decode(form, residual.encode(form, x), kCount);
          EXPECT_TRUE((sent + residual.value()).equal(corrected));
          EXPECT_TRUE((sent.to(at::kDouble) + residual.value().to(at::kDouble))
                          .equal(corrected.to(at::kDouble)));
        }
      }
    }
  }
}

TEST(Residual, OfOtherCodesLosesItsOwnRoundingOnly) {
  const harness::OneThread one_thread;
  constexpr int64_t kCount = 5000;
  bool is_exact = true;
  for (const WireForm& form :
       {WireForm{.code = WireCode::kInt4, .rounding = WireRounding::kStochastic},
        WireForm{.code = WireCode::kTwoBits}, WireForm{.code = WireCode::kTwoBits, .kept = 0.1},
        WireForm{.code = WireCode::kSign}}) {
    Residual residual(kCount);
    for (int step = 0; step < 10; ++step) {
      const at::Tensor x = difference(kCount, step, 2);
      const at::Tensor exact = (x + residual.value()).to(at::kDouble);
      const at::Tensor sent =
          decode(form, residual.encode(form, x, random_key(1, std::to_string(step))), kCount)
              .to(at::kDouble);
      const at::Tensor error = (sent + residual.value().to(at::kDouble) - exact).abs();
      EXPECT_TRUE(error.le((exact - sent).abs() * 0x1p-24).all().item<bool>());
      is_exact = is_exact && error.eq(0).all().item<bool>();
    }
  }
  EXPECT_FALSE(is_exact);  // the header promises no more than there is
}

TEST(Residual, SendsEverythingInTheEnd) {
  const harness::OneThread one_thread;
  // One of ten elements per step; the same difference each time.
  constexpr int64_t kCount = 100;
  constexpr int kSteps = 400;
  const WireForm form{.code = WireCode::kTwoBits, .kept = 0.1};
  const at::Tensor x = at::linspace(0.1, 1, kCount, at::kFloat);
  Residual residual(kCount);
  at::Tensor sum = at::zeros({kCount}, at::kDouble);
  for (int step = 0; step < kSteps; ++step) {
    sum += decode(form, residual.encode(form, x), kCount);
  }
  harness::assert_close(sum + residual.value().to(at::kDouble), x.to(at::kDouble) * kSteps, 0,
                        kSteps * 100 * 0x1p-24, "all that was sent");
  EXPECT_LT(residual.value().abs().max().item<float>(), 40);
  EXPECT_GT(sum.min().item<double>(), 0);
}

TEST(Residual, StaysWhenNothingCanBeSent) {
  Residual residual(3);
  const WireForm form{.kept = 0.3};
  static_cast<void>(residual.encode(form, at::tensor({1.f, 3.f, 2.f})));
  const at::Tensor before = residual.value().clone();
  EXPECT_TRUE(before.equal(at::tensor({1.f, 0.f, 2.f})));
  EXPECT_THROW(static_cast<void>(residual.encode(form, at::tensor({1.f, NAN, 2.f}))), ConfigError);
  EXPECT_TRUE(residual.value().equal(before));
}

}  // namespace
}  // namespace trireme::parallel
