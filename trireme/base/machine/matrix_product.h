// Matrix products of tensors as layers use them, on any device: in the factors' own type, of bf16
// summed in fp32, of fp32 as three products of bf16, and of 16-bit factors widened to fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme {

// Whether fp32 factors on the CPU are split into two bf16 parts each: where has_bf16_product() and
// torch's precision of fp32 products is "high".
bool splits_factors();

// Whether products of `a` are taken in fp32 and rounded once: fp16 on CPUs, and bf16 on those that
// multiply fp32 faster.
bool widens_factors(const at::Tensor& a);
bool widens_on_cpu(at::ScalarType dtype);  // the same of a tensor on the CPU

// A CPU tensor of bf16 or fp16 in fp32, laid out alike.
at::Tensor widened(const at::Tensor& x);

// The reverse: fp32 rounded to the nearest numbers of `dtype`.
at::Tensor rounded(const at::Tensor& wide, at::ScalarType dtype);

// A matrix to multiply by. It is split or widened once, when splits_factors() or widens_factors(),
// so give the same factor to several products. With high + low for each factor, a b = low_a high_b
// + high_a low_b + high_a high_b, up to 3 * 2^-16 of the sum of magnitudes.
// Shapes: [M, K]; rows or columns dense, others are copied
// Source: Henry, Tang, Heinecke 2019, arXiv:1904.06376
class ProductFactor {
 public:
  ProductFactor(
      const at::Tensor& matrix);  // NOLINT(google-explicit-constructor): any tensor is one
  const at::Tensor& matrix() const { return matrix_; }
  // In bf16; undefined where factors are not split.
  const at::Tensor& high() const { return high_; }
  const at::Tensor& low() const { return low_; }
  // In fp32; undefined where factors are not widened.
  const at::Tensor& wide() const { return wide_; }
  ProductFactor t() const;

 private:
  ProductFactor() = default;
  at::Tensor matrix_, high_, low_, wide_;
};

// out = beta * out + a b, all of one type.
// Shapes: a [M, K], b [K, N]; out [M, N] with dense rows
void multiply(const at::Tensor& out, const ProductFactor& a, const ProductFactor& b, int beta = 0);

// out = addend + a b. The addend is [N] or [M, N], and may be `out`.
void multiply_and_add(const at::Tensor& out, const at::Tensor& addend, const ProductFactor& a,
                      const ProductFactor& b);

// Whether a b is faster in a's own type than widened: bf16 on a processor that multiplies it.
bool multiplies_narrow(const at::Tensor& a);

// out = beta * out + a b, added up in out's type. Without multiplies_narrow(a) both are widened.
// Shapes: a [M, K], b [K, N] of one type; out [M, N] with dense rows
void multiply_wide(const at::Tensor& out, const ProductFactor& a, const ProductFactor& b,
                   int beta = 0);

// factor * x in bf16, into `out`. x is fp32; both are contiguous and on the CPU.
void narrow_into(const at::Tensor& out, const at::Tensor& x, double factor);

// The gradient of y = x W^T for W, in the type of `grad`, rounded once. It may lie where W's
// gradients are gathered (empty_gradient()). Only within a backward.
// Shapes: W [F, D], grad [S, F], x [S, D] -> [F, D]
at::Tensor weight_product(const at::Tensor& weight, const at::Tensor& grad, const at::Tensor& x);
// The same into `out` [F, D], contiguous and of that type.
void weight_product_out(const at::Tensor& out, const at::Tensor& grad, const at::Tensor& x);

}  // namespace trireme
