#include "trireme/parallel/tensor/wide_product.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/bf16_product.h"
#include "trireme/base/machine/simd.h"

namespace trireme::parallel {
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

}  // namespace

bool multiplies_narrow(const at::Tensor& a) {
  return a.is_cpu() && a.scalar_type() == at::kBFloat16 && has_bf16_product();
}

void multiply_wide(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, int beta) {
  const bool is_empty = out.numel() == 0 || a.size(1) == 0;
  if (is_empty || !multiplies_narrow(a) || out.scalar_type() != at::kFloat) {
    const at::ScalarType wide = out.scalar_type();
    // With beta = 0 uninitialised memory is not read.
    at::Tensor(out).addmm_(a.to(wide), b.to(wide), beta);
    return;
  }
  // As libtorch's profiler knows a product, so that it counts the operations.
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a, b}));
  const at::Tensor left = with_rows(a), right = with_rows(b);
  bf16_product(a.size(0), b.size(1), a.size(1), matrix_of(left), matrix_of(right),
               {out.mutable_data_ptr<float>(), std::max(out.stride(0), out.size(1))}, beta != 0);
}

at::Tensor narrowed(const at::Tensor& x, double factor) {
  const at::Tensor result = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
  narrow_numbers(x.const_data_ptr<float>(), x.numel(), static_cast<float>(factor),
                 stored_out<at::BFloat16>(result));
  return result;
}

at::Tensor weight_product(const at::Tensor& grad, const at::Tensor& x) {
  if (!multiplies_narrow(grad) || grad.numel() == 0) return at::mm(grad.t(), x);
  const at::Tensor wide = at::empty({grad.size(1), x.size(1)}, grad.options().dtype(at::kFloat));
  multiply_wide(wide, grad.t(), x);
  return narrowed(wide, 1);
}

}  // namespace trireme::parallel
