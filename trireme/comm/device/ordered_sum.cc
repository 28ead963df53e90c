#include "trireme/comm/device/ordered_sum.h"

#include <cstdint>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

// libtorch has few operators for wide unsigned integers. Those of the signed ones of the same width
// give the same bits, but for comparisons.
c10::ScalarType computed_as(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::UInt16: return c10::ScalarType::Short;
    case c10::ScalarType::UInt32: return c10::ScalarType::Int;
    case c10::ScalarType::UInt64: return c10::ScalarType::Long;
    default: return dtype;
  }
}

// The real and imaginary parts of flat numbers: [n] -> [n, 2]
at::Tensor parts_of(const at::Tensor& complex) {
  return complex.view(c10::toRealValueType(complex.scalar_type())).view({-1, 2});
}

// The parts are multiplied one by one: a fused kernel could round a product and a sum at once.
at::Tensor complex_product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = parts_of(a), y = parts_of(b);
  const at::Tensor x_real = x.select(1, 0), x_imag = x.select(1, 1);
  const at::Tensor y_real = y.select(1, 0), y_imag = y.select(1, 1);
  return at::stack({x_real * y_real - x_imag * y_imag, x_real * y_imag + x_imag * y_real}, 1)
      .view(a.scalar_type())
      .view({-1});
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp operation) {
  const bool is_bool = a.scalar_type() == at::kBool;
  switch (operation) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return is_bool ? at::logical_or(a, b) : at::add(a, b);
    case ReduceOp::kProduct:
      if (is_bool) return at::logical_and(a, b);
      return a.is_complex() ? complex_product(a, b) : at::mul(a, b);
    // With NaN and signed zeros as in reduce_kernel.cc.
    case ReduceOp::kMin: return at::where(a.ne(a).logical_or(a.lt(b)), a, b);
    case ReduceOp::kMax: return at::where(a.ne(a).logical_or(a.gt(b)), a, b);
    case ReduceOp::kBitAnd: return at::bitwise_and(a, b);
    case ReduceOp::kBitOr: return at::bitwise_or(a, b);
    case ReduceOp::kBitXor: return at::bitwise_xor(a, b);
  }
  throw InternalError("operation was not checked");
}

// Quotient of integers with values of `dtype`, rounded towards zero.
at::Tensor integer_quotient(const at::Tensor& sum, int64_t divisor, c10::ScalarType dtype) {
  at::Tensor values = sum.to(at::kLong);
  if (dtype == c10::ScalarType::UInt16) values = at::bitwise_and(values, 0xFFFF);
  if (dtype == c10::ScalarType::UInt32) values = at::bitwise_and(values, int64_t{0xFFFFFFFF});
  if (dtype != c10::ScalarType::UInt64) {
    return at::div(values, divisor, "trunc").to(sum.scalar_type());
  }
  // Half of the number is not negative; what it leaves is less than two divisors.
  const at::Tensor half = at::bitwise_and(at::bitwise_right_shift(values, 1), INT64_MAX);
  const at::Tensor least = at::div(half, divisor, "trunc") * 2;
  return least + (values - least * divisor).ge(divisor).to(at::kLong);
}

// Divides by a tensor, because GPU kernels would multiply by the inverse of a number.
at::Tensor quotient(const at::Tensor& sum, size_t divisor, c10::ScalarType dtype) {
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return integer_quotient(sum, static_cast<int64_t>(divisor), dtype);
  }
  const at::Tensor parts = sum.is_complex() ? parts_of(sum) : sum;
  parts.div_(at::full({}, static_cast<double>(divisor), parts.options()));
  return sum;
}

}  // namespace

void reduce_tensors(const at::Tensor& out, const std::vector<at::Tensor>& inputs,
                    ReduceOp operation) {
  const c10::ScalarType dtype = computed_as(out.scalar_type());
  const auto view = [dtype](const at::Tensor& tensor) {
    return tensor.scalar_type() == dtype ? tensor : tensor.view(dtype);
  };
  at::Tensor target = view(out);
  if (inputs.size() == 1) {
    target.copy_(view(inputs[0]));
    return;
  }
  if (inputs.size() == 2 && operation == ReduceOp::kSum && dtype != at::kBool) {
    at::add_out(target, view(inputs[0]), view(inputs[1]));  // one pass
    return;
  }
  // As on the host: narrow floats are added up in fp32 and rounded once.
  const bool is_small = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto wide = [&](const at::Tensor& tensor) {
    return is_small ? tensor.to(at::kFloat) : view(tensor);
  };
  at::Tensor sum = wide(inputs[0]);
  // In rank order.
  for (size_t r = 1; r < inputs.size(); ++r) sum = combined(sum, wide(inputs[r]), operation);
  if (operation == ReduceOp::kAverage) sum = quotient(sum, inputs.size(), out.scalar_type());
  target.copy_(sum);
}

void check_device_reducible(c10::ScalarType dtype, ReduceOp operation) {
  check_reducible(dtype, operation);
  const bool compares = operation == ReduceOp::kMin || operation == ReduceOp::kMax;
  TRIREME_CHECK(!compares || computed_as(dtype) == dtype, name_of(operation), " is not defined on ",
                c10::toString(dtype), " tensors of devices");
}

}  // namespace trireme::comm
