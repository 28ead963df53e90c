// Rates of products of 2,048 rows with one thread of a Xeon, libtorch's instruction sets limited
// (2026-11-30), in GFLOP/s. AVX2: bf16 2 to 16, fp16 2 to 13, fp32 87 to 92, widened factors 82 to
// 91. AVX-512: bf16 33, fp32 138 to 148. AVX512-BF16: bf16 92 to 94.
#include "trireme/base/machine/matrix_product.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "trireme/base/gradient_place.h"
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

// AMD's AVX512-BF16 multiplies bf16 at twice the rate of fp32, so oneDNN is left to use it there.
bool has_fast_bf16() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has = has_bf16_product() || (__builtin_cpu_is("amd") != 0 &&
                                                 __builtin_cpu_supports("avx512bf16") != 0);
  return has;
#else
  return true;  // not measured
#endif
}

// Rounds `wide` into `out`, once.
void round_into(const at::Tensor& out, const at::Tensor& wide) {
  if (out.scalar_type() == at::kBFloat16 && out.is_contiguous()) {
    narrow_numbers(wide.const_data_ptr<float>(), wide.numel(), 1, stored_out<at::BFloat16>(out));
  } else {
    out.copy_(wide);
  }
}

}  // namespace

bool widens_on_cpu(at::ScalarType dtype) {
  return dtype == at::kHalf || (dtype == at::kBFloat16 && !has_fast_bf16());
}

bool widens_factors(const at::Tensor& a) { return a.is_cpu() && widens_on_cpu(a.scalar_type()); }

at::Tensor widened(const at::Tensor& x) {
  if (x.scalar_type() != at::kBFloat16 || !x.is_non_overlapping_and_dense()) {
    return x.to(at::kFloat);
  }
  const at::Tensor wide = at::empty_like(x, x.options().dtype(at::kFloat));
  const auto* numbers = static_cast<const uint16_t*>(x.const_data_ptr());
  widen_numbers(numbers, x.numel(), 1, wide.mutable_data_ptr<float>());
  return wide;
}

at::Tensor rounded(const at::Tensor& wide, at::ScalarType dtype) {
  if (dtype != at::kBFloat16 || wide.scalar_type() != at::kFloat ||
      !wide.is_non_overlapping_and_dense())
    return wide.to(dtype);
  const at::Tensor result = at::empty_like(wide, wide.options().dtype(dtype));
  narrow_numbers(static_cast<const float*>(wide.const_data_ptr()), wide.numel(), 1,
                 static_cast<uint16_t*>(result.mutable_data_ptr()));
  return result;
}

bool splits_factors() {
  return has_bf16_product() &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGH;
}

ProductFactor::ProductFactor(const at::Tensor& matrix) : matrix_(matrix) {
  if (widens_factors(matrix)) wide_ = widened(matrix);
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
  if (wide_.defined()) result.wide_ = wide_.t();
  return result;
}

void multiply(const at::Tensor& out, const ProductFactor& a, const ProductFactor& b, int beta) {
  const int64_t M = out.size(0), N = out.size(1), K = a.matrix().size(1);
  if (a.wide().defined() && b.wide().defined()) {
    const at::Tensor sum =
        beta == 0 ? at::mm(a.wide(), b.wide()) : at::addmm(widened(out), a.wide(), b.wide(), beta);
    return round_into(out, sum);
  }
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
  if (a.wide().defined() && b.wide().defined()) {
    return round_into(out, at::addmm(addend.to(at::kFloat), a.wide(), b.wide()));
  }
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
  if (wide == at::kFloat && a.wide().defined() && b.wide().defined()) {
    return multiply(out, a.wide(), b.wide(), beta);
  }
  if (M * N * K == 0 || !multiplies_narrow(a.matrix()) || wide != at::kFloat) {
    return multiply(out, a.matrix().to(wide), b.matrix().to(wide), beta);
  }
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a.matrix(), b.matrix()}));
  const at::Tensor left = with_rows(a.matrix()), right = with_rows(b.matrix());
  bf16_product(M, N, K, matrix_of(left), matrix_of(right), sums_of(out), beta != 0);
}

void narrow_into(const at::Tensor& out, const at::Tensor& x, double factor) {
  narrow_numbers(x.const_data_ptr<float>(), x.numel(), static_cast<float>(factor),
                 stored_out<at::BFloat16>(out));
}

at::Tensor weight_product(const at::Tensor& weight, const at::Tensor& grad, const at::Tensor& x) {
  // Deferred products run outside of backward.
  const c10::NoGradGuard no_grad;
  at::Tensor out = weight.scalar_type() == grad.scalar_type()
                       ? empty_gradient(weight)
                       : at::empty({grad.size(1), x.size(1)}, grad.options());
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
  round_into(out, wide);
}

}  // namespace trireme
