// A sum of two tensors and a number, each with a factor per channel.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::model::inline internal {

// Each [C], of any floating type.
struct ChannelFactors {
  at::Tensor first_C;
  at::Tensor second_C;
  at::Tensor offset_C;
};

// [C] -> [1, C, 1, ...], to go with x.
at::Tensor beside(const at::Tensor& per_channel_C, const at::Tensor& x);

// first_C * first + second_C * second + offset_C, in the format of `second`. On the CPU, in fp32
// and fp64, one pass over memory; libtorch's operators need two.
// Shapes: first, second [B, C, ...] of one dtype -> the same
at::Tensor channel_sum(const at::Tensor& first, const at::Tensor& second,
                       const ChannelFactors& factors);

}  // namespace trireme::model::inline internal
