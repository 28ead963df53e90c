#include "trireme/model/layers/batch_norm.h"

#include <chrono>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/channel_sum.h"
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
      std::tie(std::ignore, sum_xhat_C, sum_C) =
          at::native_batch_norm_backward(grad, x, weight_C.to(dtype), mean_C, var_C, {}, {},
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
  TRIREME_CHECK(!x.is_cpu() || found.count.item<double>() != 1,
                "batch norm over a single value per channel, which leaves nothing to learn; raise "
                "train.micro_batch");
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

}  // namespace trireme::model
