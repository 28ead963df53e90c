#include "trireme/model/layers/rotary.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/model/gpu/gpu_kernels.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerTask = 64;

// The first 2 * half of each `width` numbers are turned. `from` and `to` may be the same memory. A
// direction of -1 rotates back.
template <typename stored, typename scalar = wide_t<stored>>
TRIREME_INLINE void turn_body(const stored* from, stored* to, const scalar* cos, const scalar* sin,
                              scalar direction, int64_t heads, int64_t half, int64_t width) {
  for (int64_t head = 0; head < heads; ++head, from += width, to += width) {
    if (from != to) std::copy(from + 2 * half, from + width, to + 2 * half);
#pragma GCC ivdep
    for (int64_t i = 0; i < half; ++i) {
      const scalar a = widen(from[i]);
      const scalar b = widen(from[i + half]);
      const scalar s = direction * sin[i];
      to[i] = narrow<stored>(a * cos[i] - b * s);
      to[i + half] = narrow<stored>(b * cos[i] + a * s);
    }
  }
}

#define TRIREME_ROTARY_KERNEL(stored, scalar)                                            \
  TRIREME_MULTIVERSION void turn_row(const stored* from, stored* to, const scalar* cos,  \
                                     const scalar* sin, scalar direction, int64_t heads, \
                                     int64_t half, int64_t width) {                      \
    turn_body(from, to, cos, sin, direction, heads, half, width);                        \
  }
TRIREME_ROTARY_KERNEL(float, float)
TRIREME_ROTARY_KERNEL(double, double)
TRIREME_ROTARY_KERNEL(uint16_t, float)
TRIREME_ROTARY_KERNEL(fp16_t, float)
#undef TRIREME_ROTARY_KERNEL

void turn(const at::Tensor& from_BTD, const at::Tensor& to_BTD, const at::Tensor& cos_TH,
          const at::Tensor& sin_TH, int64_t head_width, int direction) {
  const int64_t length = from_BTD.size(1);
  const int64_t width = from_BTD.size(2);
  const int64_t half = cos_TH.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, from_BTD.scalar_type(), "apply_rotary", [&] {
        using wide = wide_t<stored_t<scalar_t>>;
        const auto* from = stored_in<scalar_t>(from_BTD);
        auto* to = stored_out<scalar_t>(to_BTD);
        const auto* cos = cos_TH.const_data_ptr<wide>();
        const auto* sin = sin_TH.const_data_ptr<wide>();
        const int64_t rows = from_BTD.size(0) * length;
        at::parallel_for(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t position = row % length;
            turn_row(from + row * width, to + row * width, cos + position * half,
                     sin + position * half, static_cast<wide>(direction), width / head_width, half,
                     head_width);
          }
        });
      });
}

// The same for any device and dtype, into new memory. Computes in the table's dtype, rounds once.
at::Tensor turn_new(const at::Tensor& from_BTD, const at::Tensor& cos_TH, const at::Tensor& sin_TH,
                    int64_t head_width, int direction) {
  const int64_t length = from_BTD.size(1);
  const int64_t half = cos_TH.size(1);
  const bool is_whole = head_width == 2 * half;
  if (is_whole && turns_on_gpu(from_BTD, cos_TH)) {
    return gpu_turn(from_BTD, cos_TH, sin_TH, direction < 0);
  }
  at::Tensor to_BTD = is_whole ? at::empty_like(from_BTD) : from_BTD.clone();
  const auto halves = [&](const at::Tensor& x_BTD) {
    return x_BTD.unflatten(2, {-1, head_width})
        .narrow(3, 0, 2 * half)
        .unflatten(3, {2, half})
        .unbind(3);
  };
  const std::vector<at::Tensor> from = halves(from_BTD);
  std::vector<at::Tensor> to = halves(to_BTD);
  const at::Tensor cos = cos_TH.narrow(0, 0, length).unsqueeze(1);
  const at::Tensor sin = sin_TH.narrow(0, 0, length).unsqueeze(1) * direction;
  at::addcmul_out(to[0], from[1] * sin.neg(), from[0], cos);
  at::addcmul_out(to[1], from[0] * sin, from[1], cos);
  return to_BTD;
}

// The kernel turns x in its own memory.
class RotaryFunction : public torch::autograd::Function<RotaryFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_BTD, const at::Tensor& cos_TH,
                            const at::Tensor& sin_TH, int64_t head_width, bool kernel) {
    RECORD_FUNCTION("trireme::rotary", {});
    ctx->saved_data["cos"] = cos_TH;
    ctx->saved_data["sin"] = sin_TH;
    ctx->saved_data["head_width"] = head_width;
    ctx->saved_data["kernel"] = kernel;
    if (!kernel) return turn_new(x_BTD, cos_TH, sin_TH, head_width, 1);
    turn(x_BTD, x_BTD, cos_TH, sin_TH, head_width, 1);
    ctx->mark_dirty({x_BTD});
    return x_BTD;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor grad_BTD = grads[0].contiguous();
    const at::Tensor cos_TH = ctx->saved_data["cos"].toTensor();
    const at::Tensor sin_TH = ctx->saved_data["sin"].toTensor();
    const int64_t head_width = ctx->saved_data["head_width"].toInt();
    at::Tensor result_BTD;
    if (ctx->saved_data["kernel"].toBool()) {
      result_BTD = at::empty_like(grad_BTD);
      turn(grad_BTD, result_BTD, cos_TH, sin_TH, head_width, -1);
    } else {
      result_BTD = turn_new(grad_BTD, cos_TH, sin_TH, head_width, -1);
    }
    return {result_BTD, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTable::RotaryTable(int64_t sequence_length, int64_t width, double base, at::ScalarType dtype,
                         const RopeConfig& scaling) {
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  at::Tensor frequency;
  double factor = 1;
  if (scaling.rope_scaling == RopeScaling::kNone) {
    // libtorch's powers round other bits than std::pow(), and runs keep theirs.
    frequency = at::pow(base, (at::arange(0, width, 2, fp64) / width).neg());
  } else {
    const RopeFrequencies scaled = rope_frequencies(scaling, base, width, sequence_length);
    frequency = at::tensor(scaled.frequencies, fp64);
    factor = scaled.attention_factor;
  }
  const at::Tensor angle = at::outer(at::arange(sequence_length, fp64), frequency);
  const at::ScalarType kept = at::promote_types(dtype, at::kFloat);
  // Both turned by it, so the scores have its square.
  cos_TH = (angle.cos() * factor).to(kept);
  sin_TH = (angle.sin() * factor).to(kept);
}

void RotaryTable::move_to(at::Device device) {
  cos_TH = cos_TH.to(device);
  sin_TH = sin_TH.to(device);
}

RotaryAngles::RotaryAngles(const ModelConfig& config, at::ScalarType dtype)
    : table_(config.sequence_length, config.rotary_width(), config.rope_base, dtype, config.rope) {
  if (config.rope.rope_local_base == 0) return;
  local_.emplace(config.sequence_length, config.rotary_width(), config.rope.rope_local_base, dtype);
}

void RotaryAngles::complete(TokenBatch& batch) {
  const auto rows = [&](const at::Tensor& x_TH) { return x_TH.index_select(0, batch.positions_T); };
  table_.move_to(batch.positions_T.device());
  batch.cos_TH = rows(table_.cos_TH);
  batch.sin_TH = rows(table_.sin_TH);
  if (!local_) return;
  local_->move_to(batch.positions_T.device());
  batch.local_cos_TH = rows(local_->cos_TH);
  batch.local_sin_TH = rows(local_->sin_TH);
}

at::Tensor apply_rotary(const at::Tensor& x_BTD, const at::Tensor& cos_TH, const at::Tensor& sin_TH,
                        int64_t head_width) {
  if (head_width == 0) head_width = 2 * cos_TH.size(1);
  TRIREME_ASSERT(
      x_BTD.dim() == 3 && x_BTD.size(2) % head_width == 0 && head_width >= 2 * cos_TH.size(1),
      "rotary of width ", x_BTD.size(-1), " by heads of ", head_width, " and a table of ",
      2 * cos_TH.size(1));
  TRIREME_ASSERT(x_BTD.size(1) <= cos_TH.size(0), "rotary table of ", cos_TH.size(0),
                 " positions for ", x_BTD.size(1));
  const at::ScalarType dtype = x_BTD.scalar_type();
  const bool is_known = cos_TH.scalar_type() == at::promote_types(dtype, at::kFloat);
  const bool kernel = x_BTD.is_cpu() && is_known && x_BTD.is_contiguous();
  return RotaryFunction::apply(kernel ? x_BTD : x_BTD.contiguous(), cos_TH.contiguous(),
                               sin_TH.contiguous(), head_width, kernel);
}

}  // namespace trireme::model
