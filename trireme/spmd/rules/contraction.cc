// Products of matrices, sums over products, convolutions and attention.
#include <ATen/Functions.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

constexpr Factor kBatch = 0, kRow = 1, kColumn = 2, kInner = 3;

// A bias under the product: dimensions of length 1 repeat.
Factors repeated(const OperatorCall& call, size_t tensor, Factors dims, c10::IntArrayRef lengths) {
  const int64_t own = call.dims(tensor), first = std::ssize(dims) - own;
  Factors result(own);
  for (int64_t dim = 0; dim < own; ++dim) {
    const bool repeats = call.sizes(tensor)[dim] != lengths[first + dim];
    result[dim] = repeats ? kWholeDim : dims[first + dim];
  }
  return result;
}

// bias: added to the product; with it the product's tensors are 1 and 2
void product(const OperatorCall& call, Form& form, const Factors& left, const Factors& right,
             const Factors& result, bool bias) {
  if (bias) {
    const auto x = call.sizes(1), w = call.sizes(2);
    c10::SmallVector<int64_t, 3> lengths(x.begin(), x.end());
    lengths.back() = w.back();
    form.inputs.push_back(repeated(call, 0, result, lengths));
    form.added = 1;
    form.linear = {0b011, 0b101};
  } else {
    form.linear = {0b01, 0b10};
  }
  form.inputs.push_back(left);
  form.inputs.push_back(right);
  form.outputs.push_back(result);
  form.contracted = 1U << kInner;
}

void mm(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner, kColumn}, {kRow, kColumn}, false);
}
void addmm(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner, kColumn}, {kRow, kColumn}, true);
}
void bmm(const OperatorCall& call, Form& form) {
  product(call, form, {kBatch, kRow, kInner}, {kBatch, kInner, kColumn}, {kBatch, kRow, kColumn},
          false);
}
void baddbmm(const OperatorCall& call, Form& form) {
  product(call, form, {kBatch, kRow, kInner}, {kBatch, kInner, kColumn}, {kBatch, kRow, kColumn},
          true);
}
void mv(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner}, {kRow}, false);
}
void dot(const OperatorCall& call, Form& form) {
  product(call, form, {kInner}, {kInner}, {}, false);
}

// x [N, C, ...], w [O, C, ...], bias [O]. Groups keep the channels whole.
constexpr Factor kImage = 0, kOut = 1, kIn = 2;
Factors channels(const OperatorCall& call, size_t tensor, Factor first, Factor second) {
  Factors dims = whole_dims(call.dims(tensor));
  if (dims.size() >= 2) {
    dims[0] = first;
    dims[1] = second;
  }
  return dims;
}
void convolution(const OperatorCall& call, Form& form) {
  const bool grouped = call[8].toInt() != 1 || call[6].toBool();  // or transposed
  const Factor out = grouped ? kWholeDim : kOut, in = grouped ? kWholeDim : kIn;
  form.inputs = {channels(call, 0, kImage, in), channels(call, 1, out, in),
                 Factors(call.dims(2), out)};
  form.outputs = {channels(call, 0, kImage, out)};
  form.contracted = 1U << kIn;
  form.added = 0b100;
}
void convolution_backward(const OperatorCall& call, Form& form) {
  const bool grouped = call[9].toInt() != 1 || call[7].toBool();
  const Factor out = grouped ? kWholeDim : kOut, in = grouped ? kWholeDim : kIn;
  form.inputs = {channels(call, 0, kImage, out), channels(call, 1, kImage, in),
                 channels(call, 2, out, in)};
  form.outputs = {channels(call, 1, kImage, in), channels(call, 2, out, in), {out}};
  form.contracted = 1U << kImage | 1U << kOut;
  // A split of the input's channels leaves the bias' gradient whole, not a sum.
}
// The bias' sizes are an argument, and the bias is no tensor of it.
void adjust_bias_sizes(OperatorCall& call, const Form& form, const Strategy& strategy) {
  if (!call[3].isIntList()) return;
  for (const Place& place : strategy.outputs[2]) {
    if (!place.is_sharded()) continue;
    call[3] = std::vector<int64_t>{call[0].toTensor().size(1)};
  }
}

// Of q [B, H, T, D]; heads stay whole where there are fewer of keys.
Factors heads_of(const OperatorCall& call, size_t query) {
  const bool is_equal = call.sizes(query)[1] == call.sizes(query + 1)[1];
  return {0, is_equal ? Factor{1} : kWholeDim, kWholeDim, kWholeDim};
}
// An attention mask, whose dimensions of length 1 repeat.
Factors mask_of(const OperatorCall& call, size_t mask, size_t query, const Factors& heads) {
  Factors result = whole_dims(call.dims(mask));
  for (int64_t dim = 0; dim + 2 < call.dims(mask); ++dim) {
    const int64_t aligned = dim + 4 - call.dims(mask);
    if (call.sizes(mask)[dim] == call.sizes(query)[aligned]) result[dim] = heads[aligned];
  }
  return result;
}
// q, k, v, mask
void attention(const OperatorCall& call, Form& form) {
  const Factors heads = heads_of(call, 0);
  form.inputs = {heads, heads, heads};
  for (size_t i = 3; i < call.tensors().size(); ++i)
    form.inputs.push_back(mask_of(call, i, 0, heads));
  form.outputs = {heads, {heads[0], heads[1], kWholeDim}};
}
// grad, q, k, v, out, logsumexp [B, H, T], mask
void attention_backward(const OperatorCall& call, Form& form) {
  const Factors heads = heads_of(call, 1);
  form.inputs = {heads, heads, heads, heads, heads, {heads[0], heads[1], kWholeDim}};
  for (size_t i = 6; i < call.tensors().size(); ++i)
    form.inputs.push_back(mask_of(call, i, 1, heads));
  form.outputs = {heads, heads, heads};
}

}  // namespace

void add_contraction_rules(Rules& rules) {
  rules.push_back({.name = "aten::mm", .make_form = mm});
  rules.push_back({.name = "aten::addmm", .make_form = addmm});
  rules.push_back({.name = "aten::bmm", .make_form = bmm});
  rules.push_back({.name = "aten::baddbmm", .make_form = baddbmm});
  rules.push_back({.name = "aten::mv", .make_form = mv});
  rules.push_back({.name = "aten::dot", .make_form = dot});
  rules.push_back({.name = "aten::convolution", .make_form = convolution});
  rules.push_back({.name = "aten::convolution_backward",
                   .make_form = convolution_backward,
                   .adjust = adjust_bias_sizes});
  rules.push_back(
      {.name = "aten::_scaled_dot_product_flash_attention_for_cpu", .make_form = attention});
  rules.push_back({.name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                   .make_form = attention_backward});
}

}  // namespace trireme::spmd
