#include "trireme/model/resnet/convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/machine/matrix_product.h"

namespace trireme::model {
namespace {

using harness::assert_close;

// The oracle computes in fp64 with the same narrow numbers. Sums of K products in fp32, then one
// rounding of `unit` relative to the largest number.
void expect_rounded_once(at::ScalarType dtype, double unit, at::MemoryFormat format) {
  at::manual_seed(1);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3).stride(2).padding(1).bias(false));
  const at::Tensor weight = conv->weight.detach().to(dtype);
  conv->weight = weight.clone().requires_grad_();
  const at::Tensor images = at::randn({2, 3, 9, 7}).to(dtype).contiguous(format);
  const at::Tensor x = images.clone().requires_grad_();
  const at::Tensor y = convolution(x, conv);
  const at::Tensor grad = at::randn(y.sizes()).to(dtype);
  y.backward(grad);

  const at::Tensor wide_x = images.to(at::kDouble).requires_grad_(),
                   wide_weight = weight.to(at::kDouble).requires_grad_();
  const at::Tensor exact = at::conv2d(wide_x, wide_weight, {}, 2, 1);
  exact.backward(grad.to(at::kDouble));
  const double K = 4 * 2 * 5 * 4;  // the longest sum, over the places of all images
  const double bound = unit + K * 0x1p-24;
  EXPECT_EQ(y.scalar_type(), dtype);
  assert_close(y.detach().to(at::kDouble), exact.detach(), bound, 0, "output");
  assert_close(x.grad().to(at::kDouble), wide_x.grad(), bound, 0, "gradient of x");
  assert_close(conv->weight.grad().to(at::kDouble), wide_weight.grad(), bound, 0,
               "gradient of the weight");
}

TEST(Convolution, NarrowNumbersAreRoundedOnce) {
  for (const at::MemoryFormat format :
       {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    expect_rounded_once(at::kHalf, 0x1p-11, format);
    if (widens_factors(at::zeros({1}, at::kBFloat16))) {
      expect_rounded_once(at::kBFloat16, 0x1p-8, format);
    }
  }
}

TEST(Convolution, OtherDtypesAreLibtorchs) {
  at::manual_seed(2);
  const torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3).padding(1).bias(false));
  const at::Tensor x = at::randn({2, 3, 8, 8});
  harness::assert_same_bits(convolution(x, conv), at::conv2d(x, conv->weight, {}, 1, 1), "output");
}

}  // namespace
}  // namespace trireme::model
