// Tables of rows: look-ups, and sums of looked-up rows in bags.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/base/error.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

void check_dense(const OperatorCall& call, bool is_sparse) {
  TRIREME_CHECK(!is_sparse, call.described(),
                " has sparse gradients, which placed tensors do not have; use sparse = false");
}

// weight [V, E], indices, padding, scale by frequency, sparse; rows that another rank has become
// zeros of a sum.
constexpr Factor kVocabulary = 31, kWidth = 30;
void embedding(const OperatorCall& call, Form& form) {
  check_dense(call, call[4].toBool());
  const Factors indices = factors(call.dims(1));
  form.inputs = {{kVocabulary, kWidth}, indices};
  form.outputs = {indices};
  form.outputs[0].push_back(kWidth);
  form.contracted = 1U << kVocabulary;
  form.linear = {1};
}

// Looks up [..., E] in this rank's rows. Indices of other ranks' rows give zeros.
at::Tensor own_rows(const OperatorCall& call, const Places& places, const at::Tensor& weight,
                    const at::Tensor& indices) {
  const mesh::Range rows = local_range(*call.grid(), places, 0, call.sizes(0)[0]);
  const at::Tensor own = indices - rows.offset;
  const at::Tensor is_elsewhere = own.lt(0).logical_or_(own.ge(rows.size));
  at::Tensor found = rows.size == 0
                         ? at::zeros({}, weight.options()).expand({own.numel(), weight.size(1)})
                         : at::embedding(weight, own.masked_fill(is_elsewhere, 0).flatten());
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes.push_back(weight.size(1));
  return found.reshape(sizes).masked_fill(is_elsewhere.unsqueeze(-1), 0);
}

void run_embedding(OperatorCall& call, const Form&, const Strategy& strategy) {
  const at::Tensor weight = call[0].toTensor(), indices = call[1].toTensor();
  const bool is_split = num_splits(strategy.inputs[0], 0) > 0;
  call.finish(is_split ? own_rows(call, strategy.inputs[0], weight, indices)
                       : at::embedding(weight, indices));
}
// grad [..., E], indices, rows, padding, scale by frequency -> [V, E]
void embedding_backward(const OperatorCall& call, Form& form) {
  const Factors indices = call[4].toBool() ? whole_dims(call.dims(1)) : factors(call.dims(1));
  form.inputs = {indices, indices};
  form.inputs[0].push_back(kWidth);
  form.outputs = {{kWholeDim, kWidth}};
  for (int64_t dim = 0; dim < call.dims(1); ++dim) form.contracted |= 1U << dim;
  form.linear = {1};
}

constexpr int64_t kModeMean = 1, kModeMax = 2;

// weight [V, E], indices [n], offsets, scale by frequency, mode, sparse, weights [n], last offset,
// padding -> [B, E], bag of each index, size of each bag, indices of maxima
void embedding_bag(const OperatorCall& call, Form& form) {
  check_dense(call, call[5].toBool());
  const bool is_max = call[4].toInt() == kModeMax;
  form.inputs = {{is_max ? kWholeDim : kVocabulary, kWidth},
                 {kWholeDim},
                 {kWholeDim},
                 whole_dims(call.dims(3))};
  form.outputs = {{kWholeDim, kWidth}, {kWholeDim}, {kWholeDim}, {kWholeDim, kWidth}};
  if (!is_max) form.outputs[3] = {kWholeDim};
  form.sums = 1;
  if (is_max) return;
  form.contracted = 1U << kVocabulary;
  form.linear = {1};
}
// The bag of each of `count` indices.
at::Tensor bags_of(const at::Tensor& offsets, int64_t count) {
  return at::searchsorted(offsets, at::arange(count, offsets.options()), false, true) - 1;
}
// The sums of bags over this rank's rows: the other results are the same on each.
void run_embedding_bag(OperatorCall& call, const Form&, const Strategy& strategy) {
  if (num_splits(strategy.inputs[0], 0) == 0) return call.run_operator();
  const at::Tensor weight = call[0].toTensor(), indices = call[1].toTensor();
  at::Tensor offsets = call[2].toTensor();
  if (call[7].toBool()) offsets = offsets.narrow(0, 0, offsets.size(0) - 1);
  const at::Tensor bags = bags_of(offsets, indices.size(0));
  const at::Tensor counts = indices.ne(call[8].toInt());
  at::Tensor rows = own_rows(call, strategy.inputs[0], weight, indices);
  rows = rows.masked_fill(counts.logical_not().unsqueeze(1), 0);
  if (call[6].isTensor() && call[6].toTensor().defined())
    rows = rows * call[6].toTensor().unsqueeze(1);
  at::Tensor sums = at::zeros({offsets.size(0), weight.size(1)}, weight.options());
  sums.index_add_(0, bags, rows);
  const at::Tensor sizes = at::zeros_like(offsets).index_add_(0, bags, counts.to(offsets.dtype()));
  if (call[4].toInt() == kModeMean) sums.div_(sizes.clamp_min(1).unsqueeze(1));
  call.finish({sums, bags.to(indices.dtype()), sizes, at::zeros_like(sizes)});
}
// grad [B, E], indices, bag of each, sizes, indices of maxima, rows, scale, mode, weights
// -> [V, E]
void embedding_bag_backward(const OperatorCall& call, Form& form) {
  form.inputs = {
      {kWholeDim, kWidth},     {kWholeDim}, {kWholeDim}, {kWholeDim}, whole_dims(call.dims(4)),
      whole_dims(call.dims(5))};
  if (call.dims(4) == 2) form.inputs[4][1] = kWidth;
  form.outputs = {{kWholeDim, kWidth}};
  form.linear = {1};
}
// grad, indices, offsets, bag of each, sizes, indices of maxima, rows, scale, mode, sparse,
// weights, padding
bool compose_embedding_bag_backward(const OperatorCall& call) {
  check_dense(call, call[9].toBool());
  const auto tensors = call.tensors();
  at::Tensor bags = tensors[3];
  if (bags.numel() != tensors[1].numel()) bags = bags_of(whole_of(tensors[2]), tensors[1].numel());
  call.finish(at::_embedding_bag_dense_backward(
      tensors[0], tensors[1], bags, tensors[4], tensors[5], call[6].toInt(), call[7].toBool(),
      call[8].toInt(), call.optional_tensor(6), call[11].toInt()));
  return true;
}
// grad [B, E], weight [V, E], indices, offsets, bag of each -> [n]
void embedding_bag_weights_backward(const OperatorCall& call, Form& form) {
  form.inputs = {{kWholeDim, kWidth}, {kWholeDim, kWidth}, {kWholeDim}, {kWholeDim}, {kWholeDim}};
  form.outputs = {{kWholeDim}};
  form.contracted = 1U << kWidth;
  form.linear = {1};
}

}  // namespace

void add_embedding_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Adjust run = nullptr) {
    rules.push_back(
        {.name = std::string("aten::") + name, .splits = splits, .make_form = form, .run = run});
  };
  add("embedding", "rows and width of the table, all dims of the indices", embedding,
      run_embedding);
  add("embedding_dense_backward", "width, all dims of the indices", embedding_backward);
  for (const char* name : {"_embedding_bag", "_embedding_bag_forward_only"})
    add(name, "rows (sum and mean) and width of the table", embedding_bag, run_embedding_bag);
  rules.push_back({.name = "aten::_embedding_bag_backward",
                   .splits = "width",
                   .compose = compose_embedding_bag_backward});
  add("_embedding_bag_dense_backward", "width", embedding_bag_backward);
  add("_embedding_bag_per_sample_weights_backward", "width", embedding_bag_weights_backward);
}

}  // namespace trireme::spmd
