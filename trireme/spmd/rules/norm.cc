// Norms over dimensions of each sample, over groups of channels, and over a batch.
#include <algorithm>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

// The last `whole` dimensions stay whole.
Factors leading(int64_t dims, int64_t whole) {
  Factors result = factors(dims);
  for (int64_t dim = dims - whole; dim < dims; ++dim) result[dim] = kWholeDim;
  return result;
}

// input, normalized_shape, weight, bias, eps -> output, mean, rstd
void layer_norm(const OperatorCall& call, Form& form) {
  const int64_t normalized = std::ssize(call[1].toIntVector());
  const Factors x = leading(call.dims(0), normalized);
  form.inputs = {x, whole_dims(call.dims(1)), whole_dims(call.dims(2))};
  form.outputs = {x, x, x};
}
// grad, input, normalized_shape, mean, rstd, weight, bias, mask -> gradients
void layer_norm_backward(const OperatorCall& call, Form& form) {
  const int64_t normalized = std::ssize(call[2].toIntVector()), dims = call.dims(1);
  const Factors x = leading(dims, normalized);
  form.inputs = {x, x, x, x, whole_dims(call.dims(4)), whole_dims(call.dims(5))};
  form.outputs = {x, whole_dims(normalized), whole_dims(normalized)};
  for (int64_t dim = 0; dim < dims - normalized; ++dim) form.contracted |= 1U << dim;
}
// The operator reads mean and rstd as if they were contiguous, and a part of a block need not be.
void adjust_layer_norm_backward(OperatorCall& call, const Form&, const Strategy&) {
  for (const size_t i : {3, 4}) call[i] = call[i].toTensor().contiguous();
}

// x [N, C, ...], weight and bias [C] -> y, mean [N, G], rstd [N, G]: images and whole groups
constexpr Factor kSample = 0, kNormChannel = 1;
Factors sample_dims(int64_t dims) {
  Factors result = whole_dims(dims);
  result[0] = kSample;
  result[1] = kNormChannel;
  return result;
}
void group_scales(const OperatorCall& call, Form& form, size_t channels, size_t groups) {
  form.granular = kNormChannel;
  form.granule = call[channels].toInt() / call[groups].toInt();
}
// input, weight, bias, N, C, HxW, group, eps
void group_norm(const OperatorCall& call, Form& form) {
  const Factors x = sample_dims(call.dims(0));
  form.inputs = {x, Factors(call.dims(1), kNormChannel), Factors(call.dims(2), kNormChannel)};
  form.outputs = {x, {kSample, kNormChannel}, {kSample, kNormChannel}};
  group_scales(call, form, 4, 6);
  form.output_scales = {{}, {1, form.granule}, {1, form.granule}};
}
// grad, input, mean, rstd, weight, N, C, HxW, group, mask
void group_norm_backward(const OperatorCall& call, Form& form) {
  const Factors x = sample_dims(call.dims(1)), group = {kSample, kNormChannel};
  form.inputs = {x, x, group, group, Factors(call.dims(4), kNormChannel)};
  form.outputs = {x, {kNormChannel}, {kNormChannel}};
  form.contracted = 1U << kSample;
  group_scales(call, form, 6, 8);
  form.input_scales = {{}, {}, {1, form.granule}, {1, form.granule}};
}
// Of the blocks: N, C and the number of groups, from argument `first` on. False: the block of x has
// no elements, which the operator does not take.
bool adjust_groups(OperatorCall& call, const Form& form, const at::Tensor& x, size_t first) {
  call[first] = x.size(0);
  call[first + 1] = x.size(1);
  call[first + 3] = x.size(1) / form.granule;
  return x.numel() > 0;
}
void run_group_norm(OperatorCall& call, const Form& form, const Strategy&) {
  const at::Tensor x = call[0].toTensor().contiguous();
  call[0] = x;
  if (adjust_groups(call, form, x, 3)) return call.run_operator();
  const at::Tensor groups = at::zeros({x.size(0), x.size(1) / form.granule}, x.options());
  call.finish({at::empty_like(x), groups, groups.clone()});
}
void run_group_norm_backward(OperatorCall& call, const Form& form, const Strategy&) {
  const at::Tensor x = call[1].toTensor().contiguous();
  call[1] = x;
  for (const size_t i : {0, 2, 3}) call[i] = call[i].toTensor().contiguous();
  if (adjust_groups(call, form, x, 5)) return call.run_operator();
  const at::Tensor channels = at::zeros({x.size(1)}, x.options());
  const auto mask = call[9].toBoolList();
  call.finish({mask[0] ? at::empty_like(x) : at::Tensor(), mask[1] ? channels : at::Tensor(),
               mask[2] ? channels.clone() : at::Tensor()});
}

// A batch norm in terms of others: its sums go over the ranks.
class BatchNorm {
 public:
  explicit BatchNorm(const at::Tensor& x)
      : shape_(x.dim(), 1), count_(x.size(1) == 0 ? 0 : x.numel() / x.size(1)) {
    shape_[1] = x.size(1);
    for (int64_t dim = 0; dim < x.dim(); ++dim) {
      if (dim != 1) dims_.push_back(dim);
    }
  }

  int64_t count() const { return count_; }  // values of a channel
  at::Tensor sum(const at::Tensor& x) const { return x.sum(dims_); }
  at::Tensor mean(const at::Tensor& x) const {
    return summed(sum(x) / static_cast<double>(count_));
  }
  // [C] as it meets [N, C, ...]
  at::Tensor along(const at::Tensor& channels) const { return channels.view(shape_); }

 private:
  std::vector<int64_t> shape_;
  std::vector<int64_t> dims_{};
  int64_t count_;
};

// 16-bit values are summed in fp32.
at::Tensor widened(const at::Tensor& x) {
  const bool is_narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return is_narrow ? x.to(at::kFloat) : x;
}

void update(const at::Tensor& running, const at::Tensor& batch, double momentum) {
  if (running.defined())
    at::Tensor(running).mul_(1 - momentum).add_(batch.to(running.scalar_type()), momentum);
}

// input, weight, bias, running mean, running variance, training, momentum, eps
bool batch_norm(const OperatorCall& call) {
  const bool training = call[5].toBool();
  if (!training && call.tensors()[3].defined()) return false;
  const at::Tensor x = widened(call.tensors()[0]);
  const BatchNorm norm(x);
  const at::Tensor mean = norm.mean(x), centred = x - norm.along(mean);
  const at::Tensor variance = norm.mean(centred * centred);
  const at::Tensor scale = (variance + call[7].toDouble()).rsqrt();
  const auto n = static_cast<double>(norm.count());
  update(call.tensors()[3], mean, call[6].toDouble());
  update(call.tensors()[4], variance * (n / std::max(n - 1, 1.0)), call[6].toDouble());
  at::Tensor y = centred * norm.along(scale);
  if (call.tensors()[1].defined()) y = y * norm.along(widened(call.tensors()[1]));
  if (call.tensors()[2].defined()) y = y + norm.along(widened(call.tensors()[2]));
  call.finish({y.to(call.tensors()[0].scalar_type()), mean, scale});
  return true;
}
// By running statistics: each value by itself.
void batch_norm_running(const OperatorCall& call, Form& form) {
  const Factors x = factors(call.dims(0));
  form.inputs = {x};
  for (size_t i = 1; i < 5; ++i) form.inputs.push_back(Factors(call.dims(i), Factor{1}));
  form.outputs = {x, whole_dims(1), whole_dims(1)};
}

// grad, input, weight, running mean, running variance, mean, 1 / deviation, training, eps, mask
bool batch_norm_backward(const OperatorCall& call) {
  const at::Tensor grad = widened(call.tensors()[0]), x = widened(call.tensors()[1]);
  const at::Tensor& weight = call.tensors()[2];
  const BatchNorm norm(x);
  const bool training = call[7].toBool();
  const at::Tensor mean = training ? call.tensors()[5] : widened(call.tensors()[3]);
  const at::Tensor scale =
      training ? call.tensors()[6] : (widened(call.tensors()[4]) + call[8].toDouble()).rsqrt();
  const at::Tensor normal = (x - norm.along(mean)) * norm.along(scale);
  const at::Tensor bias_grad = summed(norm.sum(grad));
  const at::Tensor weight_grad = summed(norm.sum(grad * normal));
  at::Tensor x_grad = grad;
  if (training) {
    const auto n = static_cast<double>(norm.count());
    x_grad = grad - norm.along(bias_grad / n) - normal * norm.along(weight_grad / n);
  }
  x_grad = x_grad * norm.along(weight.defined() ? scale * widened(weight) : scale);
  const auto mask = call[9].toBoolList();
  const auto type = weight.defined() ? weight.scalar_type() : x.scalar_type();
  call.finish({mask[0] ? x_grad.to(call.tensors()[1].scalar_type()) : at::Tensor(),
               mask[1] ? weight_grad.to(type) : at::Tensor(),
               mask[2] ? bias_grad.to(type) : at::Tensor()});
  return true;
}

}  // namespace

void add_norm_rules(Rules& rules) {
  constexpr const char* kSamples = "all dims before the normalized ones";
  constexpr const char* kGroups = "dim 0; channels, between groups";
  constexpr const char* kBatch = "all dims; statistics are summed over the axes that split them";
  rules.push_back({.name = "aten::native_layer_norm", .splits = kSamples, .make_form = layer_norm});
  rules.push_back({.name = "aten::native_layer_norm_backward",
                   .splits = kSamples,
                   .make_form = layer_norm_backward,
                   .adjust = adjust_layer_norm_backward});
  rules.push_back({.name = "aten::native_group_norm",
                   .splits = kGroups,
                   .make_form = group_norm,
                   .run = run_group_norm});
  rules.push_back({.name = "aten::native_group_norm_backward",
                   .splits = kGroups,
                   .make_form = group_norm_backward,
                   .run = run_group_norm_backward});
  rules.push_back({.name = "aten::native_batch_norm",
                   .splits = kBatch,
                   .make_form = batch_norm_running,
                   .compose = batch_norm});
  rules.push_back({.name = "aten::native_batch_norm_backward",
                   .splits = kBatch,
                   .compose = batch_norm_backward});
}

}  // namespace trireme::spmd
