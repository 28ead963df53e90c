#include "trireme/parallel/expert/token_rows.h"

#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTokensPerTask = 32;

// sum_d = w * row_d, or added to sum_d.
template <typename scalar, typename sum_t>
TRIREME_INLINE void add_body(const scalar* row, sum_t weight, bool is_first, sum_t* sum,
                             int64_t n) {
  if (is_first) {
#pragma GCC ivdep
    for (int64_t d = 0; d < n; ++d) sum[d] = weight * static_cast<sum_t>(row[d]);
  } else {
#pragma GCC ivdep
    for (int64_t d = 0; d < n; ++d) sum[d] += weight * static_cast<sum_t>(row[d]);
  }
}

template <typename scalar, typename sum_t>
TRIREME_INLINE void scale_body(const scalar* x, sum_t weight, scalar* row, int64_t n) {
#pragma GCC ivdep
  for (int64_t d = 0; d < n; ++d) row[d] = static_cast<scalar>(weight * static_cast<sum_t>(x[d]));
}

template <typename scalar, typename sum_t>
TRIREME_INLINE sum_t product_body(const scalar* a, const scalar* b, int64_t n) {
  return lane_sum<sum_t>(
      n, [&](int64_t d) { return static_cast<sum_t>(a[d]) * static_cast<sum_t>(b[d]); });
}

#define TRIREME_ROW_KERNELS(scalar, sum_t)                                                      \
  TRIREME_MULTIVERSION void add_run(const scalar* row, sum_t weight, bool is_first, sum_t* sum, \
                                    int64_t n) {                                                \
    add_body(row, weight, is_first, sum, n);                                                    \
  }                                                                                             \
  TRIREME_MULTIVERSION void scale_run(const scalar* x, sum_t weight, scalar* row, int64_t n) {  \
    scale_body(x, weight, row, n);                                                              \
  }                                                                                             \
  TRIREME_MULTIVERSION sum_t product_run(const scalar* a, const scalar* b, int64_t n) {         \
    return product_body<scalar, sum_t>(a, b, n);                                                \
  }
TRIREME_ROW_KERNELS(float, float)
TRIREME_ROW_KERNELS(double, double)
TRIREME_ROW_KERNELS(at::BFloat16, float)
TRIREME_ROW_KERNELS(at::Half, float)
#undef TRIREME_ROW_KERNELS

at::ScalarType sum_type(at::ScalarType dtype) { return at::promote_types(dtype, at::kFloat); }

// [S * k] of the assignments' rows, those of dropped ones 0, and [S, k] whether each is kept.
struct KeptRows {
  at::Tensor rows;
  at::Tensor is_kept_SK;
};
KeptRows kept_rows(const ExpertOrder& order) {
  return {order.rows_SK.clamp_min(0).view({-1}), order.rows_SK.ge(0)};
}

// The rows of each token's assignments: [S, k, D], zero for dropped ones.
at::Tensor rows_of_tokens(const at::Tensor& rows_RD, const ExpertOrder& order) {
  const auto [rows, is_kept_SK] = kept_rows(order);
  const int64_t S = order.rows_SK.size(0), k = order.rows_SK.size(1), D = rows_RD.size(1);
  if (rows_RD.size(0) == 0) return at::zeros({S, k, D}, rows_RD.options());
  return rows_RD.index_select(0, rows).view({S, k, D}).masked_fill_(
      is_kept_SK.logical_not().unsqueeze(-1), 0);
}

// weights_SK undefined: all 1.
at::Tensor collect(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                   const ExpertOrder& order) {
  const int64_t S = order.rows_SK.size(0), k = order.rows_SK.size(1), D = rows_RD.size(1);
  if (!rows_RD.is_cpu()) {
    at::Tensor terms_SKD = rows_of_tokens(rows_RD, order).to(sum_type(rows_RD.scalar_type()));
    if (weights_SK.defined()) terms_SKD = terms_SKD * weights_SK.unsqueeze(-1);
    at::Tensor sum_SD = terms_SKD.select(1, 0);
    for (int64_t j = 1; j < k; ++j) sum_SD = sum_SD + terms_SKD.select(1, j);
    return sum_SD.to(rows_RD.scalar_type());
  }
  const at::Tensor out_SD = at::empty({S, D}, rows_RD.options());
  const auto* const row_of = order.rows_SK.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, rows_RD.scalar_type(), "rows_to_tokens", [&] {
        using sum_t = at::opmath_type<scalar_t>;
        const auto* const rows = rows_RD.const_data_ptr<scalar_t>();
        const auto* const weights =
            weights_SK.defined() ? weights_SK.const_data_ptr<sum_t>() : nullptr;
        auto* const out = out_SD.mutable_data_ptr<scalar_t>();
        at::parallel_for(0, S, kTokensPerTask, [&](int64_t begin, int64_t end) {
          std::vector<sum_t> sum(static_cast<size_t>(D));
          for (int64_t s = begin; s < end; ++s) {
            bool is_first = true;
            for (int64_t i = s * k; i < (s + 1) * k; ++i) {
              if (row_of[i] < 0) continue;
              add_run(rows + row_of[i] * D, weights == nullptr ? sum_t{1} : weights[i], is_first,
                      sum.data(), D);
              is_first = false;
            }
            if (is_first) std::ranges::fill(sum, sum_t{0});
            for (int64_t d = 0; d < D; ++d)
              out[s * D + d] = static_cast<scalar_t>(sum[static_cast<size_t>(d)]);
          }
        });
      });
  return out_SD;
}

// The gradients of collect() for rows and weights.
variable_list collect_backward(const at::Tensor& grad_SD, const at::Tensor& rows_RD,
                               const at::Tensor& weights_SK, const ExpertOrder& order) {
  const int64_t S = order.rows_SK.size(0), k = order.rows_SK.size(1), D = rows_RD.size(1);
  if (!rows_RD.is_cpu()) {
    const auto [rows, is_kept_SK] = kept_rows(order);
    const at::Tensor wide_SD = grad_SD.to(weights_SK.scalar_type());
    const at::Tensor grad_weights =
        (rows_of_tokens(rows_RD, order) * wide_SD.unsqueeze(1)).sum(-1).to(weights_SK.dtype());
    const at::Tensor terms_SKD = (wide_SD.unsqueeze(1) * weights_SK.unsqueeze(-1));
    const at::Tensor kept = is_kept_SK.view({-1}).nonzero().squeeze(1);
    const at::Tensor grad_rows = at::empty_like(rows_RD);
    grad_rows.index_copy_(0, rows.index_select(0, kept),
                          terms_SKD.view({S * k, D}).index_select(0, kept).to(rows_RD.dtype()));
    return {grad_rows, grad_weights};
  }
  const at::Tensor grad_rows_RD = at::empty_like(rows_RD);
  const at::Tensor grad_weights_SK = at::zeros_like(weights_SK);
  const auto* const row_of = order.rows_SK.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, rows_RD.scalar_type(), "rows_to_tokens_backward", [&] {
        using sum_t = at::opmath_type<scalar_t>;
        const auto* const grad = grad_SD.const_data_ptr<scalar_t>();
        const auto* const rows = rows_RD.const_data_ptr<scalar_t>();
        const auto* const weights = weights_SK.const_data_ptr<sum_t>();
        auto* const grad_rows = grad_rows_RD.mutable_data_ptr<scalar_t>();
        auto* const grad_weights = grad_weights_SK.mutable_data_ptr<sum_t>();
        at::parallel_for(0, S, kTokensPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin * k; i < end * k; ++i) {
            if (row_of[i] < 0) continue;
            const scalar_t* const own = grad + i / k * D;
            grad_weights[i] = product_run(own, rows + row_of[i] * D, D);
            scale_run(own, weights[i], grad_rows + row_of[i] * D, D);
          }
        });
      });
  return {grad_rows_RD, grad_weights_SK};
}

struct OrderCall : torch::CustomClassHolder {
  explicit OrderCall(ExpertOrder order) : order(std::move(order)) {}
  ExpertOrder order;
};

class TokensToRowsFunction : public torch::autograd::Function<TokensToRowsFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_SD,
                            const c10::intrusive_ptr<OrderCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return x_SD.index_select(0, call->order.tokens_R);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<OrderCall>(ctx->saved_data["call"].toCapsule());
    return {collect(grads[0].contiguous(), {}, call->order), at::Tensor()};
  }
};

class RowsToTokensFunction : public torch::autograd::Function<RowsToTokensFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows_RD,
                            const at::Tensor& weights_SK,
                            const c10::intrusive_ptr<OrderCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({rows_RD, weights_SK});
    return collect(rows_RD, weights_SK, call->order);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<OrderCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    variable_list result = collect_backward(grads[0].contiguous(), saved[0], saved[1], call->order);
    result.emplace_back();
    return result;
  }
};

}  // namespace

at::Tensor tokens_to_rows(const at::Tensor& x_SD, const ExpertOrder& order) {
  TRIREME_ASSERT(x_SD.dim() == 2 && x_SD.size(0) == order.rows_SK.size(0), "tokens of shape ",
                 x_SD.sizes(), " and an order of ", order.rows_SK.size(0));
  return TokensToRowsFunction::apply(x_SD, c10::make_intrusive<OrderCall>(order));
}

at::Tensor rows_to_tokens(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                          const ExpertOrder& order) {
  TRIREME_ASSERT(rows_RD.dim() == 2 && rows_RD.size(0) == order.num_rows() &&
                     weights_SK.sizes() == order.rows_SK.sizes(),
                 "rows of shape ", rows_RD.sizes(), " and weights of shape ", weights_SK.sizes(),
                 " for an order of ", order.num_rows(), " rows and assignments of shape ",
                 order.rows_SK.sizes());
  const at::Tensor weights = weights_SK.to(sum_type(rows_RD.scalar_type())).contiguous();
  return RowsToTokensFunction::apply(rows_RD.contiguous(), weights,
                                     c10::make_intrusive<OrderCall>(order));
}

}  // namespace trireme::parallel
