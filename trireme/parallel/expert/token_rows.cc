#include "trireme/parallel/expert/token_rows.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme::parallel {
namespace {

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
  // Through fp32, so that narrow rows are rounded once.
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

at::Tensor sum_on_device(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                         const ExpertOrder& order) {
  at::Tensor terms_SKD = rows_of_tokens(rows_RD, order).to(sum_type(rows_RD.scalar_type()));
  if (weights_SK.defined()) terms_SKD = terms_SKD * weights_SK.unsqueeze(-1);
  at::Tensor sum_SD = terms_SKD.select(1, 0);
  // Term by term in the order of choices, as on the host: a reduction over k would choose its own
  // order.
  for (int64_t j = 1; j < terms_SKD.size(1); ++j) sum_SD = sum_SD + terms_SKD.select(1, j);
  return sum_SD.to(rows_RD.scalar_type());
}

}  // namespace

at::ScalarType sum_type(at::ScalarType rows) { return at::promote_types(rows, at::kFloat); }

at::Tensor sum_of_rows(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                       const ExpertOrder& order) {
  const int64_t S = order.rows_SK.size(0), k = order.rows_SK.size(1), D = rows_RD.size(1);
  TRIREME_ASSERT(rows_RD.size(0) == order.num_rows(), "rows of shape ", rows_RD.sizes(),
                 " for an order of ", order.num_rows());
  if (!rows_RD.is_cpu()) return sum_on_device(rows_RD, weights_SK, order);
  const at::Tensor out_SD = at::empty({S, D}, rows_RD.options());
  const auto* const row_of = order.rows_SK.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, rows_RD.scalar_type(), "sum_of_rows", [&] {
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
            // All of its experts were full.
            if (is_first) std::ranges::fill(sum, sum_t{0});
            for (int64_t d = 0; d < D; ++d)
              out[s * D + d] = static_cast<scalar_t>(sum[static_cast<size_t>(d)]);
          }
        });
      });
  return out_SD;
}

at::Tensor gradient_of_weights(const at::Tensor& grad_SD, const at::Tensor& rows_RD,
                               const ExpertOrder& order) {
  const int64_t S = order.rows_SK.size(0), k = order.rows_SK.size(1), D = rows_RD.size(1);
  const at::ScalarType type = sum_type(rows_RD.scalar_type());
  if (!rows_RD.is_cpu()) {
    return (rows_of_tokens(rows_RD, order) * grad_SD.to(type).unsqueeze(1)).sum(-1).to(type);
  }
  const at::Tensor grad_weights_SK = at::zeros({S, k}, rows_RD.options().dtype(type));
  const auto* const row_of = order.rows_SK.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, rows_RD.scalar_type(), "gradient_of_weights", [&] {
        const auto* const grad = grad_SD.const_data_ptr<scalar_t>();
        const auto* const rows = rows_RD.const_data_ptr<scalar_t>();
        auto* const out = grad_weights_SK.mutable_data_ptr<at::opmath_type<scalar_t>>();
        at::parallel_for(0, S, kTokensPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin * k; i < end * k; ++i) {
            if (row_of[i] >= 0) out[i] = product_run(grad + i / k * D, rows + row_of[i] * D, D);
          }
        });
      });
  return grad_weights_SK;
}

at::Tensor weights_of_rows(const at::Tensor& weights_SK, const ExpertOrder& order) {
  const auto [rows, is_kept_SK] = kept_rows(order);
  const at::Tensor kept = is_kept_SK.view({-1}).nonzero().squeeze(1);
  const at::Tensor weights_R = at::empty({order.num_rows()}, weights_SK.options());
  return weights_R.index_copy_(0, rows.index_select(0, kept),
                               weights_SK.reshape({-1}).index_select(0, kept));
}

at::Tensor weighted_rows(const at::Tensor& table, const at::Tensor& tokens_N,
                         const at::Tensor& weights_N) {
  const int64_t N = tokens_N.size(0), D = table.size(1);
  if (!table.is_cpu()) {
    return (table.index_select(0, tokens_N).to(weights_N.scalar_type()) * weights_N.unsqueeze(1))
        .to(table.scalar_type());
  }
  const at::Tensor rows_ND = at::empty({N, D}, table.options());
  const auto* const token_of = tokens_N.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, table.scalar_type(), "weighted_rows", [&] {
        const auto* const from = table.const_data_ptr<scalar_t>();
        const auto* const weights = weights_N.const_data_ptr<at::opmath_type<scalar_t>>();
        auto* const rows = rows_ND.mutable_data_ptr<scalar_t>();
        at::parallel_for(0, N, kTokensPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            scale_run(from + token_of[i] * D, weights[i], rows + i * D, D);
          }
        });
      });
  return rows_ND;
}

}  // namespace trireme::parallel
