#include "trireme/model/layers/channel_sum.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/machine/multiversion.h"

namespace trireme::model::inline internal {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Rows of all channels.
template <typename scalar>
TRIREME_INLINE void sum_rows_body(const scalar* first, const scalar* second, const scalar* a,
                                  const scalar* b, const scalar* c, scalar* out, int64_t rows,
                                  int64_t C) {
  for (int64_t row = 0; row < rows; ++row, first += C, second += C, out += C) {
#pragma GCC ivdep
    for (int64_t i = 0; i < C; ++i) out[i] = a[i] * first[i] + (b[i] * second[i] + c[i]);
  }
}

// Values of one channel.
template <typename scalar>
TRIREME_INLINE void sum_plane_body(const scalar* first, const scalar* second, scalar a, scalar b,
                                   scalar c, scalar* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a * first[i] + (b * second[i] + c);
}

#define TRIREME_CHANNEL_SUM_KERNELS(scalar)                                                       \
  TRIREME_MULTIVERSION void sum_rows(const scalar* first, const scalar* second, const scalar* a,  \
                                     const scalar* b, const scalar* c, scalar* out, int64_t rows, \
                                     int64_t C) {                                                 \
    sum_rows_body(first, second, a, b, c, out, rows, C);                                          \
  }                                                                                               \
  TRIREME_MULTIVERSION void sum_plane(const scalar* first, const scalar* second, scalar a,        \
                                      scalar b, scalar c, scalar* out, int64_t n) {               \
    sum_plane_body(first, second, a, b, c, out, n);                                               \
  }
TRIREME_CHANNEL_SUM_KERNELS(float)
TRIREME_CHANNEL_SUM_KERNELS(double)
#undef TRIREME_CHANNEL_SUM_KERNELS

}  // namespace

at::Tensor beside(const at::Tensor& per_channel_C, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = per_channel_C.numel();
  return per_channel_C.view(shape);
}

at::Tensor channel_sum(const at::Tensor& first, const at::Tensor& second,
                       const ChannelFactors& factors) {
  const at::ScalarType dtype = second.scalar_type();
  const at::Tensor a_C = factors.first_C.to(dtype), b_C = factors.second_C.to(dtype),
                   c_C = factors.offset_C.to(dtype);
  const bool is_plain = second.is_contiguous();
  const bool has_rows =
      (is_plain && second.dim() == 2) || second.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool kernel = second.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble) &&
                      (has_rows || is_plain) && first.strides() == second.strides() &&
                      second.numel() > 0;
  if (!kernel) {
    return at::addcmul(beside(c_C, second), second, beside(b_C, second))
        .addcmul_(first, beside(a_C, first));
  }
  const at::Tensor out = at::empty_like(second);
  const int64_t C = second.size(1);
  AT_DISPATCH_FLOATING_TYPES(dtype, "channel_sum", [&] {
    const auto* const from = first.const_data_ptr<scalar_t>();
    const auto* const with = second.const_data_ptr<scalar_t>();
    const auto* const a = a_C.const_data_ptr<scalar_t>();
    const auto* const b = b_C.const_data_ptr<scalar_t>();
    const auto* const c = c_C.const_data_ptr<scalar_t>();
    auto* const to = out.mutable_data_ptr<scalar_t>();
    if (has_rows) {
      at::parallel_for(0, second.numel() / C, kGrain / C + 1, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * C;
        sum_rows(from + at, with + at, a, b, c, to + at, end - begin, C);
      });
      return;
    }
    const int64_t planes = second.size(0) * C, n = second.numel() / planes;
    at::parallel_for(0, planes, kGrain / n + 1, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t i = plane % C, at = plane * n;
        sum_plane(from + at, with + at, a[i], b[i], c[i], to + at, n);
      }
    });
  });
  return out;
}

}  // namespace trireme::model::inline internal
