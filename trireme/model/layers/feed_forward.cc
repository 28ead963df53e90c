#include "trireme/model/layers/feed_forward.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/model/gpu/gpu_kernels.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 14;

// Of a gate that is at most `limit` and an up that is at most that size. limit 0: SwiGLU.
struct Clamps {
  double limit = 0;
  double alpha = 1;
};

template <bool clamps, typename stored, typename scalar>
TRIREME_INLINE void forward_body(const stored* gate, const stored* up, stored* out, int64_t n,
                                 scalar limit, scalar alpha) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    scalar g = widen(gate[i]), u = widen(up[i]), z = g;
    if constexpr (clamps) {
      g = g > limit ? limit : g;
      u = (u > limit ? limit : u < -limit ? -limit : u) + scalar{1};
      z = alpha * g;
    }
    out[i] = narrow<stored>(g / (scalar{1} + fast_exp(-z)) * u);
  }
}

// Overwrites gate and up with their gradients. With s = sigmoid(gate):
// grad_gate = grad up s (1 + gate (1 - s)), grad_up = grad gate s. Clamped, with s = sigmoid(alpha
// gate): grad_gate = grad (up + 1) s (1 + alpha gate (1 - s)), and zero at what was clamped.
template <bool clamps, typename stored, typename scalar>
TRIREME_INLINE void backward_body(const stored* grad, stored* gate, stored* up, int64_t n,
                                  scalar limit, scalar alpha) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const scalar whole_g = widen(gate[i]), whole_u = widen(up[i]), d = widen(grad[i]);
    scalar g = whole_g, u = whole_u, z = g;
    if constexpr (clamps) {
      g = g > limit ? limit : g;
      u = (u > limit ? limit : u < -limit ? -limit : u) + scalar{1};
      z = alpha * g;
    }
    const scalar s = scalar{1} / (scalar{1} + fast_exp(-z));
    scalar grad_gate = d * u * (s * (scalar{1} + z * (scalar{1} - s)));
    scalar grad_up = d * (g * s);
    if constexpr (clamps) {
      grad_gate = whole_g > limit ? scalar{0} : grad_gate;
      grad_up = whole_u > limit || whole_u < -limit ? scalar{0} : grad_up;
    }
    up[i] = narrow<stored>(grad_up);
    gate[i] = narrow<stored>(grad_gate);
  }
}

#define TRIREME_SWIGLU_KERNELS(stored)                                                           \
  TRIREME_MULTIVERSION void forward_run(const stored* gate, const stored* up, stored* out,       \
                                        int64_t n) {                                             \
    forward_body<false, stored, wide_t<stored>>(gate, up, out, n, 0, 1);                         \
  }                                                                                              \
  TRIREME_MULTIVERSION void clamped_run(const stored* gate, const stored* up, stored* out,       \
                                        int64_t n, wide_t<stored> limit, wide_t<stored> alpha) { \
    forward_body<true, stored, wide_t<stored>>(gate, up, out, n, limit, alpha);                  \
  }                                                                                              \
  TRIREME_MULTIVERSION void backward_run(const stored* grad, stored* gate, stored* up,           \
                                         int64_t n) {                                            \
    backward_body<false, stored, wide_t<stored>>(grad, gate, up, n, 0, 1);                       \
  }                                                                                              \
  TRIREME_MULTIVERSION void clamped_backward_run(const stored* grad, stored* gate, stored* up,   \
                                                 int64_t n, wide_t<stored> limit,                \
                                                 wide_t<stored> alpha) {                         \
    backward_body<true, stored, wide_t<stored>>(grad, gate, up, n, limit, alpha);                \
  }
TRIREME_SWIGLU_KERNELS(float)
TRIREME_SWIGLU_KERNELS(double)
TRIREME_SWIGLU_KERNELS(uint16_t)
TRIREME_SWIGLU_KERNELS(fp16_t)
#undef TRIREME_SWIGLU_KERNELS

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::promote_types(x.scalar_type(), at::kFloat));
}

bool has_host_kernel(const at::Tensor& gate, const at::Tensor& up) {
  return gate.is_cpu() && gate.is_contiguous() && up.is_contiguous();
}

at::Tensor host_swiglu(const at::Tensor& gate, const at::Tensor& up, const Clamps& clamps) {
  RECORD_FUNCTION("trireme::swiglu", {});
  const at::Tensor out = at::empty_like(gate);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, gate.scalar_type(), "swiglu", [&] {
    using scalar = wide_t<stored_t<scalar_t>>;
    const auto* gate_data = stored_in<scalar_t>(gate);
    const auto* up_data = stored_in<scalar_t>(up);
    auto* out_data = stored_out<scalar_t>(out);
    at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      const auto* g = gate_data + begin;
      const auto* u = up_data + begin;
      if (clamps.limit == 0) return forward_run(g, u, out_data + begin, end - begin);
      clamped_run(g, u, out_data + begin, end - begin, static_cast<scalar>(clamps.limit),
                  static_cast<scalar>(clamps.alpha));
    });
  });
  return out;
}

// Writes the gradients over gate and up.
variable_list host_swiglu_backward(const at::Tensor& grad, const at::Tensor& saved_gate,
                                   const at::Tensor& saved_up, const Clamps& clamps) {
  // Detached aliases share the version counter. It is bumped below, so that a second backward
  // fails its check.
  const at::Tensor gate = saved_gate.detach(), up = saved_up.detach();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, gate.scalar_type(), "swiglu_backward", [&] {
        using scalar = wide_t<stored_t<scalar_t>>;
        const auto* grad_data = stored_in<scalar_t>(grad);
        auto* gate_data = stored_out<scalar_t>(gate);
        auto* up_data = stored_out<scalar_t>(up);
        at::parallel_for(0, grad.numel(), kGrain, [&](int64_t begin, int64_t end) {
          const auto* d = grad_data + begin;
          auto* g = gate_data + begin;
          auto* u = up_data + begin;
          if (clamps.limit == 0) return backward_run(d, g, u, end - begin);
          clamped_backward_run(d, g, u, end - begin, static_cast<scalar>(clamps.limit),
                               static_cast<scalar>(clamps.alpha));
        });
      });
  gate.unsafeGetTensorImpl()->bump_version();
  up.unsafeGetTensorImpl()->bump_version();
  return {gate, up};
}

class SwigluFunction : public torch::autograd::Function<SwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    return has_gpu_kernels(gate) ? gpu_swiglu(gate, up) : host_swiglu(gate, up, {});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    if (has_gpu_kernels(grad)) {
      auto [grad_gate, grad_up] = gpu_swiglu_backward(grad, saved[0], saved[1]);
      return {std::move(grad_gate), std::move(grad_up)};
    }
    return host_swiglu_backward(grad, saved[0], saved[1], {});
  }
};

class ClampedSwigluFunction : public torch::autograd::Function<ClampedSwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            double limit, double alpha) {
    ctx->save_for_backward({gate, up});
    ctx->saved_data["limit"] = limit;
    ctx->saved_data["alpha"] = alpha;
    if (has_host_kernel(gate, up)) return host_swiglu(gate, up, {limit, alpha});
    const at::Tensor g = wide(gate).clamp_max(limit), u = wide(up).clamp(-limit, limit);
    return ((u + 1) * g * (alpha * g).sigmoid_()).to(gate.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double limit = ctx->saved_data["limit"].toDouble();
    const double alpha = ctx->saved_data["alpha"].toDouble();
    variable_list result =
        has_host_kernel(saved[0], saved[1])
            ? host_swiglu_backward(grads[0].contiguous(), saved[0], saved[1], {limit, alpha})
            : composed_backward(grads[0], saved, limit, alpha);
    result.resize(4);
    return result;
  }

 private:
  static variable_list composed_backward(const at::Tensor& grad_out, const variable_list& saved,
                                         double limit, double alpha) {
    const at::Tensor gate = wide(saved[0]), up = wide(saved[1]), grad = wide(grad_out);
    const at::Tensor g = gate.clamp_max(limit), s = (alpha * g).sigmoid_();
    const at::Tensor grad_gate =
        grad * (up.clamp(-limit, limit) + 1) * s * (1 + alpha * g * (1 - s));
    const at::ScalarType dtype = saved[0].scalar_type();
    return {grad_gate.masked_fill(gate.gt(limit), 0).to(dtype),
            (grad * g * s).masked_fill(up.abs().gt(limit), 0).to(dtype)};
  }
};

}  // namespace

at::Tensor clamped_swiglu(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, double limit,
                          double alpha) {
  TRIREME_ASSERT(gate_BTF.sizes() == up_BTF.sizes(), "clamped swiglu of ", gate_BTF.sizes(),
                 " and ", up_BTF.sizes());
  return ClampedSwigluFunction::apply(gate_BTF, up_BTF, limit, alpha);
}

at::Tensor swiglu(const at::Tensor& gate_BTF, const at::Tensor& up_BTF) {
  TRIREME_ASSERT(gate_BTF.sizes() == up_BTF.sizes(), "swiglu of ", gate_BTF.sizes(), " and ",
                 up_BTF.sizes());
  const bool on_gpu =
      has_gpu_kernels(gate_BTF) && gate_BTF.is_contiguous() && up_BTF.is_contiguous();
  if (!on_gpu && !has_host_kernel(gate_BTF, up_BTF)) return at::silu(gate_BTF) * up_BTF;
  return SwigluFunction::apply(gate_BTF, up_BTF);
}

FeedForward::FeedForward(int64_t width, int64_t rows, const ModelAxes& axes, at::ScalarType dtype,
                         Gate gate, const GateNames& names)
    : axis_(axes.tensor), gate_(gate) {
  gate_proj = register_module(names.gate, std::make_shared<Linear>(width, rows, false, dtype));
  up_proj = register_module(names.up, std::make_shared<Linear>(width, rows, false, dtype));
  down_proj = register_module(names.down, std::make_shared<Linear>(rows, width, false, dtype));
}

at::Tensor FeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                const TokenBatch& batch) {
  const std::vector<at::Tensor> gate_up = parallel::column_linear(
      x, {gate_proj->weights(batch), up_proj->weights(batch)}, batch.lead(), axis_);
  const at::Tensor hidden = gate_ == Gate::kSilu ? swiglu(gate_up[0], gate_up[1])
                                                 : at::gelu(gate_up[0], "tanh") * gate_up[1];
  return dropout.close_branch(hidden, down_proj->weights(batch), residual, axis_, batch);
}

namespace {

// The constant: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
at::Tensor gelu_of(const at::Tensor& x, const std::string& approximation) {
  if (approximation == "quick") return x * at::sigmoid(1.702 * x);
  return at::gelu(x, approximation);
}

}  // namespace

GeluFeedForward::GeluFeedForward(const ModelConfig& config, const ModelAxes& axes,
                                 at::ScalarType dtype, const GeluOptions& options)
    : axis_(axes.tensor), approximation_(options.approximation), relu_(options.relu) {
  const int64_t D = config.width;
  const int64_t f = TensorCuts(config, axis_.size()).ffn_of(axis_.rank()).size;
  up_proj = register_at(*this, options.up, std::make_shared<Linear>(D, f, options.bias, dtype));
  down_proj = register_at(*this, options.down, std::make_shared<Linear>(f, D, options.bias, dtype));
}

at::Tensor GeluFeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                    const TokenBatch& batch) {
  const std::vector<at::Tensor> hidden =
      parallel::column_linear(x, {up_proj->weights(batch)}, batch.lead(), axis_);
  const at::Tensor active = relu_ ? at::relu(hidden[0]) : gelu_of(hidden[0], approximation_);
  return dropout.close_branch(active, down_proj->weights(batch), residual, axis_, batch);
}

}  // namespace trireme::model
