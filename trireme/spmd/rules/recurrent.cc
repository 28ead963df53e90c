// Fused recurrent layers: sequences are split by batch. Others are made of products and sums, which
// have rules of their own.
#include <ATen/Functions.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

constexpr Factor kSequence = 0;

// [T, N, C] or [N, H]
Factors sequences(int64_t dims) {
  Factors result = whole_dims(dims);
  if (dims >= 2) result[dims - 2] = kSequence;
  return result;
}

// input, four weights, hidden state, cell, ... -> output, states, workspace
void layer(const OperatorCall& call, Form& form) {
  for (size_t i = 0; i < 7; ++i) {
    const bool is_weight = i >= 1 && i <= 4;
    form.inputs.push_back(is_weight ? whole_dims(call.dims(i)) : sequences(call.dims(i)));
  }
  form.outputs = {sequences(3), sequences(call.dims(5)), sequences(call.dims(6)), whole_dims(1)};
}
// input, four weights, state, cell, output and states, their gradients, ..., workspace -> of input,
// of weights and biases, of the states
void layer_backward(const OperatorCall& call, Form& form) {
  for (size_t i = 0; i < 13; ++i) {
    const bool is_weight = i >= 1 && i <= 4;
    form.inputs.push_back(is_weight ? whole_dims(call.dims(i)) : sequences(call.dims(i)));
  }
  form.inputs.push_back(whole_dims(call.dims(13)));
  form.outputs = {form.inputs[0]};
  for (size_t i = 1; i <= 4; ++i) form.outputs.push_back(form.inputs[i]);
  form.outputs.push_back(form.inputs[5]);
  form.outputs.push_back(form.inputs[6]);
  form.contracted = 1U << kSequence;
}

// Blocks without sequences, which the fused layer does not take.
void run_layer(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor x = call[0].toTensor();
  if (x.numel() > 0) return call.run_operator();
  const int64_t width = call[10].toInt();
  call.finish({at::zeros({x.size(0), x.size(1), width}, x.options()),
               at::zeros_like(call[5].toTensor()), at::zeros_like(call[6].toTensor()),
               at::zeros({0}, x.options().dtype(at::kByte))});
}
void run_layer_backward(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor x = call[0].toTensor();
  if (x.numel() > 0) return call.run_operator();
  const auto none = [&](size_t i) { return at::zeros_like(call[i].toTensor()); };
  call.finish({none(0), none(1), none(2), none(3), none(4), none(5), none(6)});
}

}  // namespace

void add_recurrent_rules(Rules& rules) {
  rules.push_back(
      {.name = "aten::mkldnn_rnn_layer", .splits = "batch", .make_form = layer, .run = run_layer});
  rules.push_back({.name = "aten::mkldnn_rnn_layer_backward",
                   .splits = "batch",
                   .make_form = layer_backward,
                   .run = run_layer_backward});
}

}  // namespace trireme::spmd
