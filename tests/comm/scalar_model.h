// What a reduction must give, one element at a time in rank order, written without the kernel.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

template <typename T>
T reduce_scalars(const std::vector<T>& values, ReduceOp operation) {
  constexpr bool kIsSmall = std::is_same_v<T, at::Half> || std::is_same_v<T, at::BFloat16>;
  using A = std::conditional_t<kIsSmall, float, T>;
  A result = static_cast<A>(values[0]);
  for (size_t r = 1; r < values.size(); ++r) {
    const A value = static_cast<A>(values[r]);
    switch (operation) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result = static_cast<A>(result + value); break;
      case ReduceOp::kProduct: result = static_cast<A>(result * value); break;
      default: break;
    }
    if constexpr (!c10::is_complex<T>::value) {
      const bool keeps = result != result;  // a NaN stays
      if (operation == ReduceOp::kMin && !keeps && !(result < value)) result = value;
      if (operation == ReduceOp::kMax && !keeps && !(result > value)) result = value;
    }
    if constexpr (std::is_integral_v<T>) {
      if (operation == ReduceOp::kBitAnd) result = static_cast<A>(result & value);
      if (operation == ReduceOp::kBitOr) result = static_cast<A>(result | value);
      if (operation == ReduceOp::kBitXor) result = static_cast<A>(result ^ value);
    }
  }
  if constexpr (!std::is_same_v<T, bool>) {
    if (operation == ReduceOp::kAverage && values.size() > 1) {
      const auto count = static_cast<int>(values.size());
      if constexpr (std::is_integral_v<T>) {  // towards zero
        result = static_cast<A>(static_cast<int64_t>(result) / count);
      } else if constexpr (c10::is_complex<T>::value) {  // part by part
        using Part = typename T::value_type;
        result = {result.real() / static_cast<Part>(count),
                  result.imag() / static_cast<Part>(count)};
      } else {
        result = result / static_cast<A>(count);
      }
    }
  }
  return static_cast<T>(result);
}

// Over tensors, one a rank, of any supported dtype.
inline at::Tensor model_of(const std::vector<at::Tensor>& inputs, ReduceOp operation) {
  at::Tensor result = at::empty(inputs[0].sizes(), inputs[0].options());
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(
      at::kHalf, at::kBFloat16, at::kBool, result.scalar_type(), "model_of", [&] {
        std::vector<at::Tensor> flat;
        for (const at::Tensor& input : inputs) flat.push_back(input.contiguous());
        std::vector<scalar_t> values(inputs.size());
        for (int64_t i = 0; i < result.numel(); ++i) {
          for (size_t r = 0; r < flat.size(); ++r) {
            values[r] = flat[r].const_data_ptr<scalar_t>()[i];
          }
          result.mutable_data_ptr<scalar_t>()[i] = reduce_scalars(values, operation);
        }
      });
  return result;
}

// Values that differ by rank and place, whose sum depends on the order for floats.
inline at::Tensor values_of(int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  // One by one: libtorch's vectorised sine, first called by several threads at once, may come with
  // half its digits.
  at::Tensor wave = at::empty({count}, at::kDouble);
  auto* values = wave.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i)
    values[i] = std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233 + 1) * 3 + 0.1;
  if (at::isIntegralType(dtype, true)) wave = at::round(wave);
  if (dtype == at::kByte) wave = wave.abs();
  return wave.to(dtype).reshape(shape);
}

}  // namespace trireme::comm
