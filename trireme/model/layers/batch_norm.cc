#include "trireme/model/layers/batch_norm.h"

#include <chrono>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The dtype in which statistics of values in `dtype` are kept.
at::ScalarType statistics_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

class Wait {
 public:
  explicit Wait(const BatchAxis& axis) : axis_(axis), start_(Clock::now()) {}
  ~Wait() {
    if (axis_.waiting) *axis_.waiting += Clock::now() - start_;
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const BatchAxis& axis_;
  Clock::time_point start_;
};

struct Statistics {
  at::Tensor count;        // [] fp64: values per channel over all ranks
  at::Tensor mean_C;       // fp64
  at::Tensor deviation_C;  // fp64: sum of squared differences from the mean
};

// Every rank's row, in rank order.
at::Tensor gather_rows(const at::Tensor& row, const BatchAxis& axis) {
  if (axis.group == nullptr || axis.group->size() == 1) return row.unsqueeze(0);
  const Wait wait(axis);
  const at::Tensor rows = at::empty({axis.group->size(), row.numel()}, row.options());
  axis.group->all_gather(rows.unbind(0), row)->wait();
  return rows;
}

Statistics own_statistics(const at::Tensor& x) {
  const int64_t C = x.size(1);
  const at::TensorOptions fp64 = x.options().dtype(at::kDouble);
  if (x.numel() == 0) {
    return {at::zeros({}, fp64), at::zeros({C}, fp64), at::zeros({C}, fp64)};
  }
  const int64_t per_channel = x.numel() / C;
  const auto count = static_cast<double>(per_channel);
  const auto [mean_C, var_C] =
      at::batch_norm_update_stats(x.to(statistics_dtype(x.scalar_type())), {}, {}, 0.0);
  return {at::full({}, count, fp64), mean_C.to(at::kDouble), var_C.to(at::kDouble) * count};
}

Statistics statistics_of(const at::Tensor& x, const BatchAxis& axis) {
  const int64_t C = x.size(1);
  const Statistics own = own_statistics(x);
  const at::Tensor all =
      gather_rows(at::cat({own.count.view({1}), own.mean_C, own.deviation_C}), axis);
  const at::Tensor count_P1 = all.narrow(1, 0, 1);
  const at::Tensor mean_PC = all.narrow(1, 1, C);
  const at::Tensor deviation_PC = all.narrow(1, 1 + C, C);
  const at::Tensor count = count_P1.sum();
  const at::Tensor mean_C = (mean_PC * count_P1).sum(0) / count.clamp_min(1);
  const at::Tensor between_PC = (mean_PC - mean_C).square_() * count_P1;
  return {count, mean_C, (deviation_PC + between_PC).sum(0)};
}

struct Call : torch::CustomClassHolder {
  Call(double epsilon, BatchAxis axis) : epsilon(epsilon), axis(std::move(axis)) {}
  double epsilon;
  BatchAxis axis;
};

// The normalisation with given statistics; its backward takes into account that they come from x.
class NormaliseFunction : public torch::autograd::Function<NormaliseFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_C,
                            const at::Tensor& bias_C, const Statistics& found,
                            const c10::intrusive_ptr<Call>& call) {
    const at::ScalarType dtype = statistics_dtype(x.scalar_type());
    const at::Tensor mean_C = found.mean_C.to(dtype);
    const at::Tensor var_C = (found.deviation_C / found.count.clamp_min(1)).to(dtype);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({x, weight_C, mean_C, var_C, found.count});
    return std::get<0>(at::native_batch_norm(x, weight_C.to(dtype), bias_C.to(dtype), mean_C, var_C,
                                             /*training=*/false, 0.0, call->epsilon));
  }

  // With xhat = (x - mean) / sqrt(var + epsilon), a = weight / sqrt(var + epsilon) and n values per
  // channel: grad_x = a (grad - sum(grad) / n - xhat sum(grad xhat) / n), sums over all ranks.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight_C = saved[1], &mean_C = saved[2], &var_C = saved[3],
                     &count = saved[4];
    const int64_t C = x.size(1);
    const at::ScalarType dtype = mean_C.scalar_type();
    const at::Tensor grad = grads[0].to(x.scalar_type()).contiguous(x.suggest_memory_format());
    at::Tensor sum_C = at::zeros_like(mean_C), sum_xhat_C = at::zeros_like(mean_C);
    if (x.numel() > 0) {
      const at::Tensor unsaved = at::empty({0}, mean_C.options());  // CUDA's kernel wants a tensor
      std::tie(std::ignore, sum_xhat_C, sum_C) = at::native_batch_norm_backward(
          grad, x, weight_C.to(dtype), mean_C, var_C, unsaved, unsaved,
          /*train=*/false, call->epsilon, {false, true, true});
    }
    at::Tensor sums = at::cat({sum_C, sum_xhat_C}).to(at::kDouble);
    if (call->axis.group != nullptr && call->axis.group->size() > 1) {
      const Wait wait(call->axis);
      call->axis.group->all_reduce(sums)->wait();
    }
    sums.div_(count.clamp_min(1));
    const at::Tensor scale_C = (var_C.to(at::kDouble) + call->epsilon).rsqrt_();
    const at::Tensor a_C = weight_C.to(at::kDouble) * scale_C;
    const at::Tensor slope_C = -a_C * scale_C * sums.narrow(0, C, C);
    const at::Tensor offset_C = -a_C * sums.narrow(0, 0, C) - slope_C * mean_C;
    const at::Tensor grad_x = channel_sum(grad, x, {a_C, slope_C, offset_C});
    return {
        grad_x, sum_xhat_C.to(weight_C.scalar_type()), sum_C.to(weight_C.scalar_type()), {}, {}};
  }
};

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t channels, BatchNormOptions options)
    : channels_(channels), options_(options) {
  TRIREME_CHECK(channels >= 1, "a batch norm of ", channels, " channels; expected at least 1");
  reset();
}

void BatchNormImpl::reset() {
  weight = register_parameter("weight", at::ones({channels_}));
  bias = register_parameter("bias", at::zeros({channels_}));
  running_mean = register_buffer("running_mean", at::zeros({channels_}));
  running_var = register_buffer("running_var", at::ones({channels_}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

void BatchNormImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  keep_precision();
}
void BatchNormImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  keep_precision();
}
void BatchNormImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
}

void BatchNormImpl::keep_precision() {
  const at::ScalarType dtype = statistics_dtype(weight.scalar_type());
  for (at::Tensor* buffer : {&running_mean, &running_var}) {
    buffer->set_data(buffer->data().to(dtype));
  }
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  TRIREME_CHECK(x.dim() >= 2 && x.size(1) == channels_, "a batch norm of ", channels_,
                " channels got a tensor of ", x.sizes(), "; expected [B, ", channels_, ", ...]");
  const at::ScalarType dtype = statistics_dtype(x.scalar_type());
  if (!is_training()) {
    return at::batch_norm(x, weight.to(dtype), bias.to(dtype), running_mean.to(dtype),
                          running_var.to(dtype), /*training=*/false, 0.0, options_.epsilon,
                          /*cudnn_enabled=*/true);
  }
  const Statistics found = [&] {
    const c10::NoGradGuard no_grad;
    return statistics_of(x, axis);
  }();
  // A device other than the CPU would have to be waited for.
  TRIREME_CHECK(
      !x.is_cpu() || found.count.item<double>() != 1,
      "batch norm over a single value per channel, which leaves nothing to learn: the ",
      "samples of all data ranks in this microbatch are one; raise train.micro_batch, or, "
      "if it is the rest of an epoch (data.last_batch = \"keep\"), choose \"fill\" or "
      "\"drop\", or another train.global_batch");
  if (!is_recomputing()) {
    const c10::NoGradGuard no_grad;
    // No samples, no new statistics.
    const at::Tensor share = (found.count > 0).to(at::kDouble) * options_.momentum;
    const at::Tensor unbiased_C = found.deviation_C / (found.count - 1).clamp_min(1);
    running_mean.add_((share * (found.mean_C - running_mean)).to(running_mean.scalar_type()));
    running_var.add_((share * (unbiased_C - running_var)).to(running_var.scalar_type()));
    num_batches_tracked.add_((found.count > 0).to(at::kLong));
  }
  return NormaliseFunction::apply(x, weight, bias, found,
                                  c10::make_intrusive<Call>(options_.epsilon, axis));
}

std::vector<BatchNormImpl*> batch_norms_of(torch::nn::Module& module) {
  std::vector<BatchNormImpl*> found;
  module.apply([&found](torch::nn::Module& each) {
    if (auto* const norm = dynamic_cast<BatchNormImpl*>(&each)) found.push_back(norm);
  });
  return found;
}

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

}  // namespace trireme::model
