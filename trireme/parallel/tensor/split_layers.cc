// Length: the linear layers decode weights and add adapters by the same helpers.
#include "trireme/parallel/tensor/split_layers.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/gradient_place.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/tensor/adapter.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A weight among the tensors of an autograd function, or the codes that it is frozen as.
const at::Tensor& tensor_of(const LinearWeight& layer) {
  return layer.weight.defined() ? layer.weight : layer.codes.codes;
}
// The weight of tensor_of(); codes: those of the layer
at::Tensor weight_of(const at::Tensor& tensor, const WeightCodes& codes, const at::Tensor& x) {
  return codes.defined() ? decode(codes, x.scalar_type()) : tensor;
}

struct ColumnCall : torch::CustomClassHolder {
  TensorAxis axis;
  std::vector<int64_t> lead;
  std::vector<bool> has_bias;      // one per layer
  std::vector<WeightCodes> codes;  // undefined for weights that have none
  int64_t num_rows = 1;
};

// Rows of y = x W^T + b.
void multiply_rows(const at::Tensor& y_Sf, mesh::Range rows, const ProductFactor& x,
                   const LinearWeight& layer) {
  const at::Tensor y = y_Sf.narrow(0, rows.offset, rows.size);
  const at::Tensor w = layer.weight.t();
  if (layer.bias.defined()) {
    multiply_and_add(y, layer.bias, x, w);
  } else {
    multiply(y, x, w);
  }
}

// tensors: x, then each layer's weight and, if it has one, its bias.
class ColumnLinearFunction : public torch::autograd::Function<ColumnLinearFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<ColumnCall>& call,
                               at::TensorList tensors) {
    const TensorAxis& axis = call->axis;
    variable_list outputs, saved{tensors[0]}, rows_of;
    std::vector<LinearWeight> layers;
    for (size_t at = 1; at < tensors.size();) {
      const bool has_bias = call->has_bias[layers.size()];
      saved.push_back(tensors[at]);
      layers.push_back({weight_of(tensors[at], call->codes[layers.size()], tensors[0]),
                        has_bias ? tensors[at + 1] : at::Tensor()});
      at += has_bias ? 2 : 1;
    }
    // Separate tensors, because autograd forbids changing a view that is one of several outputs.
    for (const LinearWeight& layer : layers) {
      std::vector<int64_t> shape = call->lead;
      shape.push_back(layer.weight.size(0));
      outputs.push_back(at::empty(shape, tensors[0].options()));
      rows_of.push_back(outputs.back().view({call->num_rows, layer.weight.size(0)}));
    }
    MovingRows gathered = gather_rows(tensors[0], call->num_rows, axis, axis.overlaps());
    multiply_gathered(axis, tensors[0], gathered, [&](mesh::Range rows, const at::Tensor& x) {
      const ProductFactor factor = x;
      for (size_t i = 0; i < layers.size(); ++i) multiply_rows(rows_of[i], rows, factor, layers[i]);
    });
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward(std::move(saved));
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<ColumnCall>(ctx->saved_data["call"].toCapsule());
    const TensorAxis& axis = call->axis;
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    // Gathered again and not kept: the whole x of each layer is what sequence parallelism saves.
    MovingRows gathered = gather_rows(x, call->num_rows, axis, axis.overlaps());
    for (at::Tensor& grad : grads) {
      if (grad.defined()) grad = view_rows(grad);
    }
    // The sum over ranks travels while the weights' gradients are computed.
    std::optional<MovingRows> grad_x;
    if (ctx->needs_input_grad(0)) {
      grad_x = sum_rows(input_gradient(*call, saved, grads), axis, axis.overlaps());
    }
    const at::Tensor x_SD = gathered.wait();
    variable_list result(2);  // of the call, which needs_input_grad() does not count, and x
    for (size_t layer = 0; layer < grads.size(); ++layer) {
      const at::Tensor& grad = grads[layer];
      const bool wanted = grad.defined() && ctx->needs_input_grad(result.size() - 1);
      const at::Tensor& weight = saved[layer + 1];
      result.push_back(!wanted ? at::Tensor() : weight_gradient(axis, weight, [=] {
        return weight_product(weight, grad, x_SD);
      }));
      if (!call->has_bias[layer]) continue;
      result.push_back(grad.defined() ? grad.sum(0) : at::Tensor());
    }
    if (grad_x) result[1] = grad_x->wait().view(x.sizes());
    return result;
  }

 private:
  // Over this rank's outputs: [S, D].
  static at::Tensor input_gradient(const ColumnCall& call, const variable_list& saved,
                                   const variable_list& grads) {
    const at::Tensor grad_SD =
        empty_on(call.axis, {call.num_rows, saved[0].size(-1)}, saved[0].options());
    bool is_first = true;
    for (size_t layer = 0; layer < grads.size(); ++layer) {
      if (!grads[layer].defined()) continue;
      multiply(grad_SD, grads[layer], weight_of(saved[layer + 1], call.codes[layer], saved[0]),
               is_first ? 0 : 1);
      is_first = false;
    }
    return is_first ? grad_SD.zero_() : grad_SD;
  }
};

// The layers' own products.
std::vector<at::Tensor> multiply_columns(const at::Tensor& x,
                                         const std::vector<LinearWeight>& layers,
                                         at::IntArrayRef lead, const TensorAxis& axis) {
  auto call = c10::make_intrusive<ColumnCall>();
  call->axis = axis;
  call->lead = lead.vec();
  for (const int64_t length : lead) call->num_rows *= length;
  std::vector<at::Tensor> tensors{x};
  for (const LinearWeight& layer : layers) {
    tensors.push_back(tensor_of(layer));
    call->codes.push_back(layer.codes);
    call->has_bias.push_back(layer.bias.defined());
    if (layer.bias.defined()) tensors.push_back(layer.bias);
  }
  return ColumnLinearFunction::apply(call, at::TensorList(tensors));
}

// The same layer, whose bias follows the magnitudes.
LinearWeight before_magnitudes(LinearWeight layer) {
  if (layer.adapter.magnitude.defined()) layer.bias = at::Tensor();
  return layer;
}

// The sum of layer and adapter, y, with the layer's magnitudes and bias if it has magnitudes.
at::Tensor with_magnitudes(const at::Tensor& y, const LinearWeight& layer, AdapterRows rows,
                           const TensorAxis& axis) {
  if (!layer.adapter.magnitude.defined()) return y;
  const at::Tensor gain = magnitude_gain(layer, rows, axis);
  return layer.bias.defined() ? at::addcmul(layer.bias, y, gain) : y * gain;
}

}  // namespace

std::vector<at::Tensor> column_linear(const at::Tensor& x, const std::vector<LinearWeight>& layers,
                                      at::IntArrayRef lead, const TensorAxis& axis) {
  // x meets the adapters' A as it meets further layers. Each rank has the gradients from its own
  // rows of B alone.
  std::vector<LinearWeight> all;
  std::ranges::transform(layers, std::back_inserter(all), before_magnitudes);
  for (const LinearWeight& layer : layers) {
    if (layer.adapter.a.defined() && !layer.adapter.drop)
      all.push_back({replicated_weight(layer.adapter.a, axis)});
  }
  std::vector<at::Tensor> outputs = multiply_columns(x, all, lead, axis);
  size_t next = layers.size();
  for (size_t i = 0; i < layers.size(); ++i) {
    const Adapter& adapter = layers[i].adapter;
    if (!adapter.a.defined()) continue;
    const at::Tensor z =
        adapter.drop ? multiply_columns(adapter.drop(x), {{replicated_weight(adapter.a, axis)}},
                                        lead, axis)[0]
                     : outputs[next++];
    outputs[i] = add_adapter(outputs[i], z, adapter.b, adapter.scale, axis, AdapterSum::kInPlace);
    outputs[i] = with_magnitudes(outputs[i], layers[i], AdapterRows::kWhole, axis);
  }
  outputs.resize(layers.size());
  return outputs;
}

at::Tensor own_linear(const at::Tensor& x, const LinearWeight& layer, const TensorAxis& axis) {
  const LinearWeight own = before_magnitudes(layer);
  const at::Tensor y = own.codes.defined() || widens_factors(x)
                           ? multiply_columns(x, {own}, x.sizes().slice(0, x.dim() - 1), {})[0]
                           : at::linear(x, own.weight, own.bias);
  const Adapter& adapter = layer.adapter;
  if (!adapter.a.defined()) return y;
  const at::Tensor z =
      own_linear(adapter.drop ? adapter.drop(x) : x, {replicated_weight(adapter.a, axis)}, axis);
  const at::Tensor sum = add_adapter(y, z, adapter.b, adapter.scale, axis, AdapterSum::kNew);
  return with_magnitudes(sum, layer, AdapterRows::kWhole, axis);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RowCall : torch::CustomClassHolder {
  TensorAxis axis;
  bool has_bias = false;
  bool has_residual = false;
  WeightCodes codes;           // undefined: the weight has none
  std::vector<int64_t> shape;  // of the result
};

// Computes rows of this rank's part of the sum, into y. Residual and bias are added only to the
// rank's own rows. Each row thus gets them once, inside a matrix product, and the ranks share the
// work.
class PartialProduct {
 public:
  PartialProduct(const at::Tensor& x_Sf, const at::Tensor& w_Df, at::Tensor bias,
                 at::Tensor residual, const TensorAxis& axis, const at::Tensor& y_SD)
      : x_Sf_(x_Sf),
        w_fD_(w_Df.t()),
        bias_(std::move(bias)),
        residual_(std::move(residual)),
        own_(axis.own_rows(x_Sf.size(0))),
        first_residual_row_(axis.sequence ? own_.offset : 0),
        y_SD_(y_SD) {}

  // rows: those of one rank.
  void operator()(mesh::Range rows) const {
    if (rows.size == 0) return;
    const at::Tensor y = y_SD_.narrow(0, rows.offset, rows.size);
    const at::Tensor x = x_Sf_.narrow(0, rows.offset, rows.size);
    // Only one rank adds residual and bias, or the sum would have them p times.
    if (rows != own_ || (!residual_.defined() && !bias_.defined())) {
      multiply(y, x, w_fD_);
    } else if (!residual_.defined()) {
      multiply_and_add(y, bias_, x, w_fD_);
    } else {
      const at::Tensor residual =
          // With sequence parallelism the residual has the rank's own rows only.
          view_rows(residual_).narrow(0, rows.offset - first_residual_row_, rows.size);
      multiply_and_add(y, residual, x, w_fD_);
      if (bias_.defined()) y.add_(bias_);
    }
  }

 private:
  at::Tensor x_Sf_;
  ProductFactor w_fD_;
  at::Tensor bias_, residual_;
  mesh::Range own_;
  int64_t first_residual_row_;
  at::Tensor y_SD_;
};

// tensors: x, weight, then bias and residual if present.
class RowLinearFunction : public torch::autograd::Function<RowLinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<RowCall>& call,
                            at::TensorList tensors) {
    const at::Tensor bias = call->has_bias ? tensors[2] : at::Tensor();
    const at::Tensor residual = call->has_residual ? tensors[call->has_bias ? 3 : 2] : at::Tensor();
    const at::Tensor x_Sf = view_rows(tensors[0]);
    const at::Tensor y_SD =
        empty_on(call->axis, {x_Sf.size(0), tensors[1].size(0)}, x_Sf.options());
    const PartialProduct product(x_Sf, weight_of(tensors[1], call->codes, x_Sf), bias, residual,
                                 call->axis, y_SD);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({tensors[0], tensors[1]});
    return multiply_and_sum_rows(y_SD, call->axis, product).view(call->shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<RowCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor x_Sf = view_rows(x);
    const TensorAxis& axis = call->axis;
    MovingRows gathered = gather_rows(grads[0], x_Sf.size(0), axis, axis.overlaps());
    variable_list result(3);  // of the call, which needs_input_grad() does not count, x, weight
    if (ctx->needs_input_grad(0)) {
      const at::Tensor grad_x_Sf = at::empty(x_Sf.sizes(), x_Sf.options());
      const at::Tensor w_Df = weight_of(saved[1], call->codes, x);
      multiply_gathered(axis, grads[0], gathered, [&](mesh::Range rows, const at::Tensor& grad) {
        multiply(grad_x_Sf.narrow(0, rows.offset, rows.size), grad, w_Df);
      });
      result[1] = grad_x_Sf.view(x.sizes());
    }
    const at::Tensor grad_SD = gathered.wait();
    if (ctx->needs_input_grad(1)) {
      const at::Tensor& weight = saved[1];
      result[2] =
          weight_gradient(axis, weight, [=] { return weight_product(weight, grad_SD, x_Sf); });
    }
    if (call->has_bias) result.push_back(grad_SD.sum(0));
    if (call->has_residual) result.push_back(grads[0]);
    return result;
  }
};

// The layer's own product, and the residual.
at::Tensor multiply_own_columns(const at::Tensor& x_f, const LinearWeight& layer,
                                const at::Tensor& residual, const TensorAxis& axis) {
  TRIREME_ASSERT(x_f.size(-1) == layer.columns(), "row_linear of ", x_f.sizes(), " by ",
                 layer.rows(), " rows of ", layer.columns());
  auto call = c10::make_intrusive<RowCall>();
  call->axis = axis;
  call->codes = layer.codes;
  call->has_bias = layer.bias.defined();
  call->has_residual = residual.defined();
  if (residual.defined()) {
    call->shape = residual.sizes().vec();
  } else if (axis.sequence) {
    call->shape = {axis.own_rows(x_f.numel() / x_f.size(-1)).size, layer.rows()};
  } else {
    call->shape = x_f.sizes().vec();
    call->shape.back() = layer.rows();
  }
  std::vector<at::Tensor> tensors{x_f, tensor_of(layer)};
  if (call->has_bias) tensors.push_back(layer.bias);
  if (call->has_residual) tensors.push_back(residual);
  return RowLinearFunction::apply(call, at::TensorList(tensors));
}

}  // namespace

at::Tensor row_linear(const at::Tensor& x_f, const LinearWeight& layer, const at::Tensor& residual,
                      const TensorAxis& axis) {
  const Adapter& adapter = layer.adapter;
  if (!adapter.a.defined()) return multiply_own_columns(x_f, layer, residual, axis);
  const at::Tensor z =
      multiply_own_columns(adapter.drop ? adapter.drop(x_f) : x_f, {adapter.a}, {}, axis);
  const auto added_to = [&](const at::Tensor& y) {
    return add_adapter(y, z, weight_of_rows(adapter.b, axis), adapter.scale, axis,
                       AdapterSum::kNew);
  };
  if (adapter.magnitude.defined()) {
    LinearWeight own = layer;
    own.adapter.magnitude = weight_of_rows(adapter.magnitude, axis);
    if (own.bias.defined()) own.bias = weight_of_rows(own.bias, axis);
    const at::Tensor sum = added_to(multiply_own_columns(x_f, before_magnitudes(own), {}, axis));
    const at::Tensor y = with_magnitudes(sum, own, AdapterRows::kCut, axis);
    return residual.defined() ? y + residual : y;
  }
  if (residual.defined()) return multiply_own_columns(x_f, layer, added_to(residual), axis);
  return added_to(multiply_own_columns(x_f, layer, {}, axis));
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct VocabCall : torch::CustomClassHolder {
  TensorAxis axis;
  at::Tensor positions;  // [n] int64: rows of the result that this rank fills
  at::Tensor rows;       // [n] int64: rows of the rank's weight
  int64_t num_rows = 0;  // S
};

// Whether libtorch would round a row's sum after each token that has it. A device's kernels add up
// in fp32.
bool rounds_each_term(const at::Tensor& weight) {
  return weight.is_cpu() && at::isReducedFloatingType(weight.scalar_type());
}

// The gradient of an embedding's weight: for each row, the sum over its tokens. In 16-bit numbers
// it is rounded once: a token may come hundreds of times.
// Shapes: weight [v, D], grad [S, D], rows [S] int64 -> [v, D]
at::Tensor embedding_gradient(const at::Tensor& weight_vD, const at::Tensor& grad_SD,
                              const at::Tensor& rows_S) {
  const auto sum = [](const at::Tensor& grad, const at::Tensor& rows, int64_t num_rows) {
    return at::embedding_dense_backward(grad, rows, num_rows, /*padding_idx=*/-1,
                                        /*scale_grad_by_freq=*/false);
  };
  if (!rounds_each_term(weight_vD)) return sum(grad_SD, rows_S, weight_vD.size(0));
  at::Tensor result = empty_gradient(weight_vD).zero_();
  if (rows_S.numel() == 0) return result;
  // Only the rows that tokens have, so that no wide matrix has the size of the weight.
  const auto [used_U, place_S, counts] =
      at::_unique2(rows_S, /*sorted=*/true, /*return_inverse=*/true);
  const at::Tensor sums_UD = sum(grad_SD.to(at::kFloat), place_S, used_U.size(0));
  result.index_copy_(0, used_U.to(at::kLong), sums_UD.to(result.scalar_type()));
  return result;
}

// An embedding whose weight is whole on this rank.
class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight_VD,
                            const at::Tensor& tokens) {
    ctx->saved_data["weight"] = weight_VD;
    ctx->saved_data["tokens"] = tokens;
    return at::embedding(weight_VD, tokens);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {embedding_gradient(ctx->saved_data["weight"].toTensor(), view_rows(grads[0]),
                               ctx->saved_data["tokens"].toTensor().reshape({-1})),
            at::Tensor()};
  }
};

class VocabEmbeddingFunction : public torch::autograd::Function<VocabEmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight_vD,
                            const c10::intrusive_ptr<VocabCall>& call) {
    const at::Tensor y_SD =
        empty_on(call->axis, {call->num_rows, weight_vD.size(1)}, weight_vD.options());
    y_SD.zero_();
    // Only the rows of this rank's part of the vocabulary.
    y_SD.index_copy_(0, call->positions, weight_vD.index_select(0, call->rows));
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->saved_data["weight"] = weight_vD;
    // All but one of a row's terms are zero, so the sum is exact.
    return sum_rows(y_SD, call->axis).wait();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<VocabCall>(ctx->saved_data["call"].toCapsule());
    const at::Tensor grad_SD = gather_rows(grads[0], call->num_rows, call->axis).wait();
    // Gradients of tokens elsewhere belong to the ranks that have them.
    return {embedding_gradient(ctx->saved_data["weight"].toTensor(),
                               grad_SD.index_select(0, call->positions), call->rows),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor vocab_embedding(const at::Tensor& tokens_BT, const at::Tensor& weight_vD,
                           int64_t first_row, const TensorAxis& axis) {
  if (axis.size() == 1) {
    const at::Tensor y_BTD = rounds_each_term(weight_vD)
                                 ? EmbeddingFunction::apply(weight_vD, tokens_BT)
                                 : at::embedding(weight_vD, tokens_BT);
    return axis.sequence ? view_rows(y_BTD) : y_BTD;
  }
  auto call = c10::make_intrusive<VocabCall>();
  call->axis = axis;
  const at::Tensor rows_S = tokens_BT.reshape({-1}) - first_row;
  call->num_rows = rows_S.numel();
  call->positions = rows_S.ge(0).logical_and(rows_S.lt(weight_vD.size(0))).nonzero().squeeze(1);
  call->rows = rows_S.index_select(0, call->positions);
  at::Tensor y = VocabEmbeddingFunction::apply(weight_vD, call);
  if (axis.sequence) return y;
  std::vector<int64_t> shape = tokens_BT.sizes().vec();
  shape.push_back(weight_vD.size(1));
  return y.view(shape);
}

}  // namespace trireme::parallel
