// Norms, embeddings, losses and pooling.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>

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

// weight [V, E], indices; rows that another rank has become zeros of a sum.
constexpr Factor kVocabulary = 31, kWidth = 30;
void embedding(const OperatorCall& call, Form& form) {
  const Factors indices = factors(call.dims(1));
  form.inputs = {{kVocabulary, kWidth}, indices};
  form.outputs = {indices};
  form.outputs[0].push_back(kWidth);
  form.contracted = 1U << kVocabulary;
  form.linear = {1};
}
void run_embedding(OperatorCall& call, const Form&, const Strategy& strategy) {
  const at::Tensor weight = call[0].toTensor(), indices = call[1].toTensor();
  if (num_splits(strategy.inputs[0], 0) == 0) {
    call.finish(at::embedding(weight, indices));
    return;
  }
  const mesh::Range rows = local_range(*call.grid(), strategy.inputs[0], 0, call.sizes(0)[0]);
  const at::Tensor own = indices - rows.offset;
  const at::Tensor is_elsewhere = own.lt(0).logical_or_(own.ge(rows.size));
  at::Tensor found = rows.size == 0
                         ? at::zeros({}, weight.options()).expand({own.numel(), weight.size(1)})
                         : at::embedding(weight, own.masked_fill(is_elsewhere, 0).flatten());
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes.push_back(weight.size(1));
  call.finish(found.reshape(sizes).masked_fill(is_elsewhere.unsqueeze(-1), 0));
}
// grad [..., E], indices, rows, padding -> [V, E]
void embedding_backward(const OperatorCall& call, Form& form) {
  const Factors indices = factors(call.dims(1));
  form.inputs = {indices, indices};
  form.inputs[0].push_back(kWidth);
  form.outputs = {{kWholeDim, kWidth}};
  for (int64_t dim = 0; dim < call.dims(1); ++dim) form.contracted |= 1U << dim;
  form.linear = {1};
}

// x [N, C] or [C], target, weight [C]; sums without reduction to a mean
void nll_loss(const OperatorCall& call, Form& form) {
  const Factors rows = factors(call.dims(1));
  form.inputs = {rows, rows, whole_dims(call.dims(2))};
  form.inputs[0].push_back(kWholeDim);
  const bool has_rows = call[3].toInt() == at::Reduction::None;
  form.outputs = {has_rows ? rows : Factors(), Factors()};
  form.contracted = rows.empty() ? 0 : 1;
}
bool nll_loss_forward(const OperatorCall& call) {
  if (call[3].toInt() != at::Reduction::Mean) return false;
  const at::Tensor& weight = call.tensors()[2];
  auto [sum, total] =
      at::nll_loss_forward(call.tensors()[0], call.tensors()[1],
                           weight.defined() ? std::optional<at::Tensor>(weight) : std::nullopt,
                           at::Reduction::Sum, call[4].toInt());
  call.finish(sum.div(total));
  call.stack().emplace_back(total);
  return true;
}
// grad, x, target, weight, reduction, ignored, total
void nll_loss_backward(const OperatorCall& call, Form& form) {
  const Factors rows = factors(call.dims(2));
  Factors x = rows;
  x.push_back(kWholeDim);
  form.inputs = {call.dims(0) == 0 ? Factors() : rows, x, rows, whole_dims(call.dims(3)),
                 whole_dims(call.dims(4))};
  form.outputs = {x};
  form.linear = {1};
}

// x, target, reduction
bool squared_error(const OperatorCall& call) {
  const at::Tensor difference = call.tensors()[0] - call.tensors()[1];
  const at::Tensor squares = difference * difference;
  const int64_t reduction = call[2].toInt();
  call.finish(reduction == at::Reduction::None  ? squares
              : reduction == at::Reduction::Sum ? squares.sum()
                                                : squares.mean());
  return true;
}
bool squared_error_backward(const OperatorCall& call) {
  at::Tensor gradient = (call.tensors()[1] - call.tensors()[2]) * 2 * call.tensors()[0];
  if (call[3].toInt() == at::Reduction::Mean) gradient = gradient / call.tensors()[1].numel();
  call.finish(gradient);
  return true;
}

// x [N, C, ...] and others alike; only images and channels are split.
void images(const OperatorCall& call, Form& form) {
  for (size_t i = 0; i < call.tensors().size(); ++i) {
    form.inputs.push_back(whole_dims(call.dims(i)));
    if (call.dims(i) != call.dims(0) || call.dims(i) < 3) continue;
    const int64_t first = call.dims(i) == 3 ? 1 : 0;  // [C, H, W]
    for (int64_t dim = first; dim < 2; ++dim) {
      form.inputs[i][dim - first] = static_cast<Factor>(dim);
    }
  }
  form.outputs.assign(call.op().schema().returns().size(), form.inputs[0]);
}
void images_linear(const OperatorCall& call, Form& form) {
  images(call, form);
  form.linear = {1};
}

}  // namespace

void add_layer_rules(Rules& rules) {
  const auto add = [&](const char* name, Rule::MakeForm form, Rule::Adjust run = nullptr) {
    rules.push_back({.name = std::string("aten::") + name, .make_form = form, .run = run});
  };
  add("native_layer_norm", layer_norm);
  add("native_layer_norm_backward", layer_norm_backward);
  add("embedding", embedding, run_embedding);
  add("embedding_dense_backward", embedding_backward);
  rules.push_back(
      {.name = "aten::nll_loss_forward", .make_form = nll_loss, .compose = nll_loss_forward});
  add("nll_loss_backward", nll_loss_backward);
  rules.push_back({.name = "aten::mse_loss", .compose = squared_error});
  rules.push_back({.name = "aten::mse_loss_backward", .compose = squared_error_backward});
  add("max_pool2d_with_indices", images);
  for (const char* name : {"max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
                           "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"}) {
    add(name, images_linear);
  }
}

}  // namespace trireme::spmd
