#include "trireme/base/machine/matrix_product.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/bf16_product.h"
#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

// Whether x lies in rows that do not overlap, as those of a broadcast gradient do.
bool has_rows(const at::Tensor& x) { return x.stride(1) == 1 && x.stride(0) >= x.size(1); }

// The matrix itself if its rows or columns are dense.
at::Tensor with_rows(const at::Tensor& x) {
  return has_rows(x) || has_rows(x.t()) ? x : x.contiguous();
}

Bf16Matrix matrix_of(const at::Tensor& x) {
  const bool is_transposed = !has_rows(x);
  return {{stored_in<at::BFloat16>(x), x.stride(is_transposed ? 1 : 0)}, is_transposed};
}

Rows<float> sums_of(const at::Tensor& out) {
  return {out.mutable_data_ptr<float>(), std::max(out.stride(0), out.size(1))};
}

}  // namespace

bool splits_factors() {
  return has_bf16_product() &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGH;
}

ProductFactor::ProductFactor(const at::Tensor& matrix) : matrix_(matrix) {
  if (!matrix.is_cpu() || matrix.scalar_type() != at::kFloat || !splits_factors()) return;
  const at::Tensor dense = with_rows(matrix);
  const bool is_transposed = !has_rows(dense);
  const at::Tensor rows = is_transposed ? dense.t() : dense;
  const at::Tensor high = at::empty(rows.sizes(), rows.options().dtype(at::kBFloat16));
  const at::Tensor low = at::empty_like(high);
  split_numbers({rows.const_data_ptr<float>(), rows.stride(0)}, rows.size(0), rows.size(1),
                stored_out<at::BFloat16>(high), stored_out<at::BFloat16>(low));
  high_ = is_transposed ? high.t() : high;
  low_ = is_transposed ? low.t() : low;
}

ProductFactor ProductFactor::t() const {
  ProductFactor result;
  result.matrix_ = matrix_.t();
  if (high_.defined()) result.high_ = high_.t();
  if (low_.defined()) result.low_ = low_.t();
  return result;
}

void multiply(const at::Tensor& out, const ProductFactor& a, const ProductFactor& b, int beta) {
  const int64_t M = out.size(0), N = out.size(1), K = a.matrix().size(1);
  if (!a.high().defined() || !b.high().defined() || M * N * K == 0) {
    at::Tensor result = out;
    if (beta == 0) {
      at::mm_out(result, a.matrix(), b.matrix());
    } else {
      result.addmm_(a.matrix(), b.matrix(), beta);
    }
    return;
  }
  // As libtorch's profiler knows a product, so that it counts the operations.
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a.matrix(), b.matrix()}));
  const Bf16Matrix high_a = matrix_of(a.high()), high_b = matrix_of(b.high());
  // The smallest terms first.
  bf16_product(M, N, K, matrix_of(a.low()), high_b, sums_of(out), /*adds=*/beta != 0);
  bf16_product(M, N, K, high_a, matrix_of(b.low()), sums_of(out), /*adds=*/true);
  bf16_product(M, N, K, high_a, high_b, sums_of(out), /*adds=*/true);
}

void multiply_and_add(const at::Tensor& out, const at::Tensor& addend, const ProductFactor& a,
                      const ProductFactor& b) {
  at::Tensor result = out;
  if (!a.high().defined()) {
    at::addmm_out(result, addend, a.matrix(), b.matrix());
    return;
  }
  if (!addend.is_same(out)) result.copy_(addend);
  multiply(out, a, b, /*beta=*/1);
}

bool multiplies_narrow(const at::Tensor& a) {
  return a.is_cpu() && a.scalar_type() == at::kBFloat16 && has_bf16_product();
}

void multiply_wide(const at::Tensor& out, const ProductFactor& a, const ProductFactor& b,
                   int beta) {
  const int64_t M = out.size(0), N = out.size(1), K = a.matrix().size(1);
  const at::ScalarType wide = out.scalar_type();
  if (a.matrix().scalar_type() == wide) return multiply(out, a, b, beta);
  if (M * N * K == 0 || !multiplies_narrow(a.matrix()) || wide != at::kFloat) {
    return multiply(out, a.matrix().to(wide), b.matrix().to(wide), beta);
  }
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a.matrix(), b.matrix()}));
  const at::Tensor left = with_rows(a.matrix()), right = with_rows(b.matrix());
  bf16_product(M, N, K, matrix_of(left), matrix_of(right), sums_of(out), beta != 0);
}

at::Tensor narrowed(const at::Tensor& x, double factor) {
  const at::Tensor result = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
  narrow_numbers(x.const_data_ptr<float>(), x.numel(), static_cast<float>(factor),
                 stored_out<at::BFloat16>(result));
  return result;
}

at::Tensor weight_product(const at::Tensor& grad, const at::Tensor& x) {
  // Deferred products run outside of backward.
  const c10::NoGradGuard no_grad;
  const at::Tensor out = at::empty({grad.size(1), x.size(1)}, grad.options());
  weight_product_out(out, grad, x);
  return out;
}

void weight_product_out(const at::Tensor& out, const at::Tensor& grad, const at::Tensor& x) {
  if (!multiplies_narrow(grad) || grad.numel() == 0 || out.numel() == 0) {
    multiply(out, grad.t(), x);
    return;
  }
  const at::Tensor wide = at::empty(out.sizes(), grad.options().dtype(at::kFloat));
  multiply_wide(wide, grad.t(), x);
  narrow_numbers(wide.const_data_ptr<float>(), wide.numel(), 1, stored_out<at::BFloat16>(out));
}

}  // namespace trireme
