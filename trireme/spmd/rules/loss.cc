// Softmax and losses. Where an axis splits the classes, the ranks exchange a row's largest value
// and its sum, not the row.
#include <limits>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using comm::ReduceOp;

// x, dim: rows along it may be split, at the price of `exchanges` numbers for each row.
void rows_along(const OperatorCall& call, Form& form, size_t dim_argument, int exchanges) {
  const Factors dims = factors(call.dims(0));
  form.inputs.assign(call.tensors().size(), dims);
  form.outputs = {dims};
  if (dims.empty()) return;
  const int64_t dim = c10::maybe_wrap_dim(call[dim_argument].toInt(), call.dims(0));
  form.exchanged = 1U << dim;
  form.num_exchanges = exchanges;
  const int64_t rows = call.tensors()[0].numel() / std::max<int64_t>(call.sizes(0)[dim], 1);
  form.exchanged_bytes = static_cast<double>(exchanges * rows * call.tensors()[0].element_size());
}
void softmax(const OperatorCall& call, Form& form) { rows_along(call, form, 1, 2); }
void softmax_backward(const OperatorCall& call, Form& form) {
  rows_along(call, form, 2, 1);
  form.linear = {1};
}

at::Tensor in_fp32(const at::Tensor& x) {
  const bool is_narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return is_narrow ? x.to(at::kFloat) : x;
}

template <bool kLog>
void run_softmax(OperatorCall& call, const Form&, const Strategy& strategy) {
  const int64_t dims = call.dims(0);
  const int dim = dims == 0 ? 0 : static_cast<int>(c10::maybe_wrap_dim(call[1].toInt(), dims));
  const Places& places = strategy.inputs[0];
  if (dims == 0 || num_splits(places, dim) == 0) return call.run_operator();
  const at::Tensor block = call[0].toTensor(), x = in_fp32(block);
  std::vector<int64_t> rows = x.sizes().vec();
  rows[dim] = 1;
  at::Tensor most = x.size(dim) == 0
                        ? at::full(rows, -std::numeric_limits<double>::infinity(), x.options())
                        : x.amax(dim, true);
  sum_over_splits(*call.grid(), places, dim, most, ReduceOp::kMax);
  const at::Tensor shifted = x - most, powers = shifted.exp();
  at::Tensor total = powers.sum(dim, true);
  sum_over_splits(*call.grid(), places, dim, total);
  const at::Tensor y = kLog ? shifted - total.log() : powers / total;
  call.finish(call[2].toBool() ? y : y.to(block.scalar_type()));
}
// grad, output, dim, dtype of the input
template <bool kLog>
void run_softmax_backward(OperatorCall& call, const Form&, const Strategy& strategy) {
  const int64_t dims = call.dims(0);
  const int dim = dims == 0 ? 0 : static_cast<int>(c10::maybe_wrap_dim(call[2].toInt(), dims));
  const Places& places = strategy.inputs[1];
  if (dims == 0 || num_splits(places, dim) == 0) return call.run_operator();
  const at::Tensor grad = in_fp32(call[0].toTensor()), y = in_fp32(call[1].toTensor());
  at::Tensor total = (kLog ? grad : grad * y).sum(dim, true);
  sum_over_splits(*call.grid(), places, dim, total);
  const at::Tensor result = kLog ? grad - y.exp() * total : (grad - total) * y;
  call.finish(result.to(call[3].toScalarType()));
}

// x [N, C, ...] or [C], target, weight [C]; sums without reduction to a mean
constexpr Factor kClass = 31;
constexpr int64_t kElsewhere = -100;  // a target that counts for nothing
Factors with_classes(const Factors& rows) {
  Factors x = rows;
  x.insert(x.begin() + (rows.empty() ? 0 : 1), kClass);
  return x;
}
int class_dim(const OperatorCall& call, size_t x) { return call.dims(x) == 1 ? 0 : 1; }
void nll_loss(const OperatorCall& call, Form& form) {
  const Factors rows = factors(call.dims(1));
  form.inputs = {with_classes(rows), rows, Factors(call.dims(2), kClass)};
  const bool has_rows = call[3].toInt() == at::Reduction::None;
  form.outputs = {has_rows ? rows : Factors(), Factors()};
  form.contracted = 1U << kClass;
  for (size_t dim = 0; dim < rows.size(); ++dim) form.contracted |= 1U << dim;
}
// Targets of the classes that this rank has, counted from its first.
at::Tensor own_targets(const OperatorCall& call, size_t x, const Places& places,
                       const at::Tensor& target, int64_t ignored) {
  const mesh::Range own =
      local_range(*call.grid(), places, class_dim(call, x), call.sizes(x)[class_dim(call, x)]);
  const at::Tensor shifted = target - own.offset;
  const at::Tensor is_elsewhere =
      shifted.lt(0).logical_or_(shifted.ge(own.size)).logical_or_(target.eq(ignored));
  return shifted.masked_fill(is_elsewhere, kElsewhere);
}
void run_nll_loss(OperatorCall& call, const Form&, const Strategy& strategy) {
  const at::Tensor x = call[0].toTensor();
  const int dim = class_dim(call, 0);
  if (num_splits(strategy.inputs[0], dim) == 0) return call.run_operator();
  call[1] = own_targets(call, 0, strategy.inputs[0], call[1].toTensor(), call[4].toInt());
  call[4] = kElsewhere;
  if (x.size(dim) > 0) return call.run_operator();
  const bool has_rows = call[3].toInt() == at::Reduction::None;
  const at::Tensor target = call[1].toTensor();
  call.finish({has_rows ? at::zeros(target.sizes(), x.options()) : at::zeros({}, x.options()),
               at::zeros({}, x.options())});
}
bool nll_loss_forward(const OperatorCall& call) {
  if (call[3].toInt() != at::Reduction::Mean) return false;
  const bool is_image = call.op().schema().name() == "aten::nll_loss2d_forward";
  const auto function = is_image ? at::nll_loss2d_forward : at::nll_loss_forward;
  const auto [sum, total] = function(call.tensors()[0], call.tensors()[1], call.optional_tensor(2),
                                     at::Reduction::Sum, call[4].toInt());
  const at::Tensor count = summed(total);
  call.finish({summed(sum).div(count), count});
  return true;
}
// grad, x, target, weight, reduction, ignored, total
void nll_loss_backward(const OperatorCall& call, Form& form) {
  const Factors rows = factors(call.dims(2));
  form.inputs = {call.dims(0) == 0 ? Factors() : rows, with_classes(rows), rows,
                 Factors(call.dims(3), kClass), whole_dims(call.dims(4))};
  form.outputs = {form.inputs[1]};
  form.linear = {1};
}
void run_nll_loss_backward(OperatorCall& call, const Form&, const Strategy& strategy) {
  const at::Tensor x = call[1].toTensor();
  const int dim = class_dim(call, 1);
  if (num_splits(strategy.inputs[1], dim) == 0) return call.run_operator();
  if (x.size(dim) == 0) return call.finish(at::zeros_like(x));
  call[2] = own_targets(call, 1, strategy.inputs[1], call[2].toTensor(), call[5].toInt());
  call[5] = kElsewhere;
  call.run_operator();
}

at::Tensor reduced_by(const at::Tensor& losses, int64_t reduction) {
  if (reduction == at::Reduction::None) return losses;
  return reduction == at::Reduction::Sum ? losses.sum() : losses.mean();
}

// x, target, reduction
bool squared_error(const OperatorCall& call) {
  const at::Tensor difference = call.tensors()[0] - call.tensors()[1];
  call.finish(reduced_by(difference * difference, call[2].toInt()));
  return true;
}
bool squared_error_backward(const OperatorCall& call) {
  at::Tensor gradient = (call.tensors()[1] - call.tensors()[2]) * 2 * call.tensors()[0];
  if (call[3].toInt() == at::Reduction::Mean) gradient = gradient / call.tensors()[1].numel();
  call.finish(gradient);
  return true;
}

// Losses of each element. With a reduction: those, then a sum or mean.
void losses(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(0));
  form.inputs.assign(call.tensors().size(), dims);
  for (size_t i = 0; i < call.tensors().size(); ++i) {
    if (call.dims(i) != call.dims(0)) form.inputs[i] = whole_dims(call.dims(i));
  }
  form.outputs = {dims};
}
bool smooth_l1(const OperatorCall& call) {
  const int64_t reduction = call[2].toInt();
  if (reduction == at::Reduction::None) return false;
  call.finish(reduced_by(at::smooth_l1_loss(call.tensors()[0], call.tensors()[1],
                                            at::Reduction::None, call[3].toDouble()),
                         reduction));
  return true;
}
bool huber(const OperatorCall& call) {
  const int64_t reduction = call[2].toInt();
  if (reduction == at::Reduction::None) return false;
  call.finish(reduced_by(
      at::huber_loss(call.tensors()[0], call.tensors()[1], at::Reduction::None, call[3].toDouble()),
      reduction));
  return true;
}
bool entropy(const OperatorCall& call) {
  const int64_t reduction = call[3].toInt();
  if (reduction == at::Reduction::None) return false;
  call.finish(reduced_by(at::binary_cross_entropy(call.tensors()[0], call.tensors()[1],
                                                  call.optional_tensor(2), at::Reduction::None),
                         reduction));
  return true;
}
// The gradient of each element: grad is repeated, x and target (and weight) are as they are.
template <size_t kReduction>
void run_losses_backward(OperatorCall& call, const Form&, const Strategy&) {
  if (call[kReduction].toInt() == at::Reduction::Mean) {
    call[0] = call[0].toTensor() / static_cast<double>(call.tensors()[1].numel());
    call[kReduction] = static_cast<int64_t>(at::Reduction::Sum);
  }
  call.run_operator();
}
void losses_backward(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(1));
  for (size_t i = 0; i < call.tensors().size(); ++i) {
    const bool is_alike = call.dims(i) == call.dims(1);
    form.inputs.push_back(is_alike ? dims : whole_dims(call.dims(i)));
  }
  form.outputs = {dims};
  form.linear = {1};
}

}  // namespace

void add_loss_rules(Rules& rules) {
  constexpr const char* kRows = "all dims; a row's maximum and sum are exchanged";
  constexpr const char* kClasses = "all dims, classes too";
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Adjust run = nullptr, Rule::Compose compose = nullptr) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = splits,
                     .make_form = form,
                     .run = run,
                     .compose = compose});
  };
  add("_softmax", kRows, softmax, run_softmax<false>);
  add("_log_softmax", kRows, softmax, run_softmax<true>);
  add("_softmax_backward_data", kRows, softmax_backward, run_softmax_backward<false>);
  add("_log_softmax_backward_data", kRows, softmax_backward, run_softmax_backward<true>);
  for (const char* name : {"nll_loss_forward", "nll_loss2d_forward"})
    add(name, kClasses, nll_loss, run_nll_loss, nll_loss_forward);
  for (const char* name : {"nll_loss_backward", "nll_loss2d_backward"})
    add(name, kClasses, nll_loss_backward, run_nll_loss_backward);
  constexpr const char* kElements = "all dims";
  add("mse_loss", kElements, nullptr, nullptr, squared_error);
  add("mse_loss_backward", kElements, nullptr, nullptr, squared_error_backward);
  add("smooth_l1_loss", kElements, losses, nullptr, smooth_l1);
  add("huber_loss", kElements, losses, nullptr, huber);
  add("binary_cross_entropy", kElements, losses, nullptr, entropy);
  for (const char* name : {"smooth_l1_loss_backward", "huber_loss_backward"})
    add(name, kElements, losses_backward, run_losses_backward<3>);
  add("binary_cross_entropy_backward", kElements, losses_backward, run_losses_backward<4>);
}

}  // namespace trireme::spmd
