// The kernels on a GPU beside the operators of the host in fp64. Label gpu.
#include "trireme/model/gpu/gpu_kernels.h"

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/rotary.h"

namespace trireme::model {
namespace {

using namespace harness;

// Value and gradients of `function` on the GPU, and in fp64 on the host for the same inputs.
void expect_same(const std::function<at::Tensor(const Tensors&)>& function, const Tensors& inputs,
                 at::ScalarType dtype, double tolerance) {
  const auto run = [&](at::Device device, at::ScalarType type) {
    Tensors leaves;
    for (const at::Tensor& input : inputs)
      leaves.push_back(input.to(dtype).to(device, type).requires_grad_());
    Tensors arguments;
    for (const at::Tensor& leaf : leaves) arguments.push_back(leaf * 1);
    const at::Tensor value = function(arguments);
    const at::Tensor weight = values(value.sizes(), 0.71).to(dtype).to(device, type);
    Tensors result = torch::autograd::grad({value}, leaves, {weight});
    result.push_back(value.detach());
    for (at::Tensor& each : result) each = each.cpu().to(at::kDouble);
    return result;
  };
  const Tensors host = run(at::kCPU, at::kDouble), gpu = run({at::kCUDA, 0}, dtype);
  for (size_t i = 0; i < host.size(); ++i)
    assert_close(gpu[i], host[i], tolerance, tolerance, std::to_string(i));
}

// One rounding, and for narrow types those of fp32 before.
const std::pair<at::ScalarType, double> kTypes[] = {
    {at::kDouble, 1e-14}, {at::kFloat, 1e-6}, {at::kHalf, 0x1p-10}, {at::kBFloat16, 0x1p-7}};

TEST(GpuKernels, SwigluIsThatOfTheHost) {
  for (const auto& [dtype, tolerance] : kTypes) {
    expect_same([](const Tensors& in) { return swiglu(in[0], in[1]); },
                {values({3, 5, 257}, 0.37, 4), values({3, 5, 257}, 0.73, 2)}, dtype, tolerance);
  }
}

TEST(GpuKernels, PairsTurnAsOnTheHost) {
  for (const auto& [dtype, tolerance] : kTypes) {
    for (const int64_t head_width : {2, 6, 64, 128}) {
      RotaryTable table(9, head_width, 10000, dtype);
      expect_same(
          [&](const Tensors& in) {
            const at::ScalarType kept = at::promote_types(in[0].scalar_type(), at::kFloat);
            return apply_rotary(in[0], table.cos_TH.to(in[0].device(), kept),
                                table.sin_TH.to(in[0].device(), kept));
          },
          {values({2, 7, 3 * head_width}, 0.37)}, dtype, tolerance);
    }
  }
}

}  // namespace
}  // namespace trireme::model
