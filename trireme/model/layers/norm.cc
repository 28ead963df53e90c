#include "trireme/model/layers/norm.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/model/family/init.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows in one partial sum of the weight's gradient. A constant, so the order of the sum is fixed.
constexpr int64_t kRowsPerBlock = 128;

template <typename stored, typename scalar = wide_t<stored>>
TRIREME_INLINE void forward_body(const stored* x, const stored* weight, stored* y, scalar* scale,
                                 int64_t rows, int64_t width, scalar epsilon, scalar offset) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const scalar squares =
        lane_sum<scalar>(width, [&](int64_t i) { return widen(x[i]) * widen(x[i]); });
    const scalar r = scalar{1} / std::sqrt(squares / static_cast<scalar>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i)
      y[i] = narrow<stored>(widen(x[i]) * r * (offset + widen(weight[i])));
    scale[row] = r;
  }
}

// With g = grad_y * (offset + weight): grad_x = r g - x r^3 mean(g x) (+ grad_residual);
// grad_weight += grad_y x r.
template <typename stored, typename scalar = wide_t<stored>>
TRIREME_INLINE void backward_body(const stored* grad_y, const stored* grad_residual,
                                  const stored* x, const stored* weight, const scalar* scale,
                                  stored* grad_x, scalar* grad_weight, int64_t rows, int64_t width,
                                  scalar offset) {
  for (int64_t row = 0; row < rows; ++row) {
    const scalar r = scale[row];
    const scalar gx = lane_sum<scalar>(width, [&](int64_t i) {
      return widen(grad_y[i]) * (offset + widen(weight[i])) * widen(x[i]);
    });
    const scalar c = gx / static_cast<scalar>(width) * r * r * r;
    for (int64_t i = 0; i < width; ++i) grad_weight[i] += widen(grad_y[i]) * widen(x[i]) * r;
    const auto grad = [&](int64_t i) {
      return r * (widen(grad_y[i]) * (offset + widen(weight[i]))) - c * widen(x[i]);
    };
    if (grad_residual != nullptr) {
      for (int64_t i = 0; i < width; ++i)
        grad_x[i] = narrow<stored>(widen(grad_residual[i]) + grad(i));
      grad_residual += width;
    } else {
      for (int64_t i = 0; i < width; ++i) grad_x[i] = narrow<stored>(grad(i));
    }
    grad_y += width, x += width, grad_x += width;
  }
}

#define TRIREME_RMS_NORM_KERNELS(stored, scalar)                                                \
  TRIREME_MULTIVERSION void forward_rows(const stored* x, const stored* weight, stored* y,      \
                                         scalar* scale, int64_t rows, int64_t width,            \
                                         scalar epsilon, scalar offset) {                       \
    forward_body(x, weight, y, scale, rows, width, epsilon, offset);                            \
  }                                                                                             \
  TRIREME_MULTIVERSION void backward_rows(                                                      \
      const stored* grad_y, const stored* grad_residual, const stored* x, const stored* weight, \
      const scalar* scale, stored* grad_x, scalar* grad_weight, int64_t rows, int64_t width,    \
      scalar offset) {                                                                          \
    backward_body(grad_y, grad_residual, x, weight, scale, grad_x, grad_weight, rows, width,    \
                  offset);                                                                      \
  }
TRIREME_RMS_NORM_KERNELS(float, float)
TRIREME_RMS_NORM_KERNELS(double, double)
TRIREME_RMS_NORM_KERNELS(uint16_t, float)
TRIREME_RMS_NORM_KERNELS(fp16_t, float)
#undef TRIREME_RMS_NORM_KERNELS

at::ScalarType wide_type(const at::Tensor& x) {
  return at::promote_types(x.scalar_type(), at::kFloat);
}

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_in,
                               const at::Tensor& weight_D, double epsilon, double offset) {
    RECORD_FUNCTION("trireme::rms_norm", {});
    const at::Tensor x = x_in.contiguous();
    const int64_t width = weight_D.numel();
    const int64_t rows = x.numel() / width;
    const at::Tensor y = at::empty_like(x);
    const at::Tensor scale = at::empty({rows}, x.options().dtype(wide_type(x)));  // [rows]
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm", [&] {
      using wide = wide_t<stored_t<scalar_t>>;
      const auto* x_data = stored_in<scalar_t>(x);
      const auto* weight_data = stored_in<scalar_t>(weight_D);
      auto* y_data = stored_out<scalar_t>(y);
      auto* scale_data = scale.mutable_data_ptr<wide>();
      at::parallel_for(0, rows, kRowsPerBlock, [&](int64_t begin, int64_t end) {
        forward_rows(x_data + begin * width, weight_data, y_data + begin * width,
                     scale_data + begin, end - begin, width, static_cast<wide>(epsilon),
                     static_cast<wide>(offset));
      });
    });
    ctx->save_for_backward({x, weight_D});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["offset"] = offset;
    ctx->set_materialize_grads(false);
    return {x_in, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[1].defined()) return {grads[0], at::Tensor(), at::Tensor(), at::Tensor()};
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight_D = saved[1];
    const at::Tensor scale = ctx->saved_data["scale"].toTensor();
    const double offset = ctx->saved_data["offset"].toDouble();
    const at::Tensor grad_y = grads[1].contiguous();
    const at::Tensor grad_residual = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    const int64_t width = weight_D.numel();
    const int64_t rows = scale.numel();
    const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
    const at::Tensor grad_x = at::empty_like(x);
    const at::Tensor partial =
        at::zeros({blocks, width}, x.options().dtype(wide_type(x)));  // [blocks, D]
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm_backward", [&] {
          using wide = wide_t<stored_t<scalar_t>>;
          const auto* grad_y_data = stored_in<scalar_t>(grad_y);
          const auto* residual_data =
              grad_residual.defined() ? stored_in<scalar_t>(grad_residual) : nullptr;
          const auto* x_data = stored_in<scalar_t>(x);
          const auto* weight_data = stored_in<scalar_t>(weight_D);
          const auto* scale_data = scale.const_data_ptr<wide>();
          auto* grad_x_data = stored_out<scalar_t>(grad_x);
          auto* partial_data = partial.mutable_data_ptr<wide>();
          at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block) {
              const int64_t row = block * kRowsPerBlock;
              const int64_t at = row * width;
              backward_rows(grad_y_data + at, residual_data ? residual_data + at : nullptr,
                            x_data + at, weight_data, scale_data + row, grad_x_data + at,
                            partial_data + block * width, std::min(kRowsPerBlock, rows - row),
                            width, static_cast<wide>(offset));
            }
          });
        });
    return {grad_x, partial.sum(0).to(weight_D.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

LayerNorm::LayerNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : epsilon_(config.norm_epsilon), axis_(axes.tensor) {
  weight_D = register_parameter("weight", new_parameter({config.width}, dtype, 1));
  bias_D = register_parameter("bias", new_parameter({config.width}, dtype));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(x, weight_D.sizes(), parallel::weight_of_rows(weight_D, axis_),
                        parallel::weight_of_rows(bias_D, axis_), epsilon_);
}

std::pair<at::Tensor, at::Tensor> rms_norm_branch(const at::Tensor& x, const at::Tensor& weight_D,
                                                  double epsilon, double offset) {
  TRIREME_ASSERT(x.dim() > 0 && x.size(-1) == weight_D.numel(), "norm of width ", weight_D.numel());
  const bool kernel = x.is_cpu() && x.scalar_type() == weight_D.scalar_type();
  if (!kernel && offset != 0) {
    // A sum in a narrow dtype would round the weight as if it were as large as the offset.
    const at::Tensor weight = weight_D.to(wide_type(x)) + offset;
    const at::Tensor y = at::rms_norm(x.to(wide_type(x)), {weight_D.numel()}, weight, epsilon);
    return {x, y.to(x.scalar_type())};
  }
  // libtorch's computes in at least fp32, on a GPU in one kernel.
  if (!kernel) return {x, at::rms_norm(x, {weight_D.numel()}, weight_D, epsilon)};
  const variable_list out = RmsNormFunction::apply(x, weight_D, epsilon, offset);
  return {out[0], out[1]};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double epsilon,
                    double offset) {
  return rms_norm_branch(x, weight_D, epsilon, offset).second;
}

RmsNorm::RmsNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                 double offset)
    : epsilon_(config.norm_epsilon), offset_(offset), axis_(axes.tensor) {
  weight_D = register_parameter("weight", new_parameter({config.width}, dtype, 1 - offset));
}

std::pair<at::Tensor, at::Tensor> RmsNorm::branch(const at::Tensor& x) {
  return rms_norm_branch(x, parallel::weight_of_rows(weight_D, axis_), epsilon_, offset_);
}

SharedNorm::SharedNorm(int64_t width, double epsilon, const parallel::TensorAxis& axis,
                       at::ScalarType dtype, double offset)
    : epsilon_(epsilon), offset_(offset), axis_(axis) {
  weight_H = register_parameter("weight", new_parameter({width}, dtype, 1 - offset));
}

at::Tensor SharedNorm::forward(const at::Tensor& x) const {
  const at::Tensor of_heads = x.unflatten(-1, {-1, weight_H.numel()});
  return rms_norm(of_heads, parallel::replicated_weight(weight_H, axis_), epsilon_, offset_)
      .view_as(x);
}

}  // namespace trireme::model
