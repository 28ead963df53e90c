// Views: other dimensions of the same elements.
#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>

#include "trireme/base/error.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using Sizes = std::vector<int64_t>;

// Sizes of which those of dimensions that an axis splits become this rank's.
Sizes sizes_of_block(const OperatorCall& call, const Places& places, c10::IntArrayRef whole) {
  return local_sizes(*call.grid(), places, whole);
}

c10::SmallVector<int64_t, 6> strides_of(const at::Tensor& tensor) {
  return {tensor.strides().begin(), tensor.strides().end()};
}

// The sizes that a view asks for.
Sizes asked_sizes(const OperatorCall& call) {
  const auto sizes = at::infer_size(call[1].toIntVector(), call.tensors()[0].numel());
  return {sizes.begin(), sizes.end()};
}

// A run of dimensions [begin, end) of `sizes`.
struct Run {
  c10::IntArrayRef sizes;
  size_t begin;
  size_t end;

  size_t first() const {  // longer than 1
    size_t dim = begin;
    while (dim < end && sizes[dim] == 1) ++dim;
    return dim;
  }
  int64_t scale(size_t dim) const {  // the product of those after it
    int64_t product = 1;
    for (size_t after = dim + 1; after < end; ++after) product *= sizes[after];
    return product;
  }
  bool is_one() const { return first() < end && scale(first()) == 1; }
};

// The dimensions after the first of `many`, which became one or come from one.
void join_others(const Run& many, int one, bool is_output, Form& form, Factor& next) {
  Factors& dims = is_output ? form.inputs[0] : form.outputs[0];
  auto& scales = is_output ? form.input_scales[0] : form.output_scales[0];
  for (size_t dim = many.first() + 1; dim < many.end; ++dim) {
    if (many.sizes[dim] == 1) continue;
    scales[dim] = many.scale(dim);
    dims[dim] = next;
    form.joined.push_back({is_output, one, next++, many.sizes[dim] * scales[dim]});
  }
}

// Runs of dimensions with the same product, here and there: the first longer than 1 of each is
// split together.
void view(const OperatorCall& call, Form& form) {
  const c10::IntArrayRef from = call.sizes(0);
  const Sizes to = asked_sizes(call);
  form.inputs = {whole_dims(std::ssize(from))};
  form.outputs = {whole_dims(std::ssize(to))};
  form.linear = {1};
  if (call.tensors()[0].numel() == 0) return;
  if (const auto strides = at::detail::computeStride(from, call.tensors()[0].strides(), to))
    form.strides.assign(strides->begin(), strides->end());
  form.input_scales.emplace_back(from.size(), 1);
  form.output_scales.emplace_back(to.size(), 1);
  Factor next = 0;
  for (size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    Run source{from, i, i}, result{to, j, j};
    int64_t here = 1, there = 1;
    do {
      if (here <= there && source.end < from.size()) {
        here *= from[source.end++];
      } else {
        there *= to[result.end++];
      }
    } while (here != there || result.end == j);
    const size_t in = source.first(), out = result.first();
    if (in < source.end && out < result.end) {
      form.inputs[0][in] = form.outputs[0][out] = next++;
      form.input_scales[0][in] = source.scale(in);
      form.output_scales[0][out] = result.scale(out);
      if (result.is_one()) join_others(source, static_cast<int>(out), true, form, next);
      if (source.is_one()) join_others(result, static_cast<int>(in), false, form, next);
    }
    i = source.end;
    j = result.end;
  }
  const auto are_ones = [](c10::ArrayRef<Form::Scales> scales) {
    return std::ranges::all_of(scales[0], [](int64_t scale) { return scale == 1; });
  };
  // Only dimensions of length 1 come or go: splits of every kind stay as they are.
  if (form.joined.empty() && are_ones(form.input_scales) && are_ones(form.output_scales)) {
    form.input_scales.clear();
    form.output_scales.clear();
  }
}
// Also where the block's elements cannot be viewed like that: then it is copied.
void run_view(OperatorCall& call, const Form&, const Strategy& strategy) {
  const Sizes sizes = sizes_of_block(call, strategy.outputs[0], asked_sizes(call));
  call.finish(call[0].toTensor().reshape(sizes));
}

void permuted(const OperatorCall& call, Form& form, c10::IntArrayRef order) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims};
  form.outputs.emplace_back();
  for (const int64_t asked : order) {
    const int64_t dim = c10::maybe_wrap_dim(asked, call.dims(0));
    form.outputs[0].push_back(dims[dim]);
    form.strides.push_back(call.tensors()[0].stride(dim));
  }
  form.linear = {1};
}
void permute(const OperatorCall& call, Form& form) { permuted(call, form, call[1].toIntVector()); }
void swap(const OperatorCall& call, Form& form, int64_t a, int64_t b) {
  Sizes order(call.dims(0));
  for (size_t dim = 0; dim < order.size(); ++dim) order[dim] = static_cast<int64_t>(dim);
  if (!order.empty()) {
    std::swap(order[c10::maybe_wrap_dim(a, call.dims(0))],
              order[c10::maybe_wrap_dim(b, call.dims(0))]);
  }
  permuted(call, form, order);
}
void transpose(const OperatorCall& call, Form& form) {
  swap(call, form, call[1].toInt(), call[2].toInt());
}
void t(const OperatorCall& call, Form& form) { swap(call, form, 0, -1); }

void unsqueeze(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims};
  form.outputs = {dims};
  const int64_t at = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0) + 1);
  form.outputs[0].insert(form.outputs[0].begin() + at, kWholeDim);
  const at::Tensor& x = call.tensors()[0];
  form.strides = strides_of(x);
  form.strides.insert(form.strides.begin() + at,
                      at < x.dim() ? x.size(at) * x.stride(at) : int64_t{1});
  form.linear = {1};
}

// The dimensions of length 1 that go.
Sizes squeezed_dims(const OperatorCall& call) {
  Sizes asked, dims;
  if (call.num_arguments() == 1) {
    for (int64_t dim = 0; dim < call.dims(0); ++dim) asked.push_back(dim);
  } else if (call[1].isInt()) {
    asked = {call[1].toInt()};
  } else {
    asked = call[1].toIntVector();
  }
  for (const int64_t dim : asked) {
    const int64_t at = c10::maybe_wrap_dim(dim, call.dims(0));
    if (call.dims(0) > 0 && call.sizes(0)[at] == 1) dims.push_back(at);
  }
  return dims;
}
void squeeze(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims};
  form.outputs.emplace_back();
  const Sizes gone = squeezed_dims(call);
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    const bool goes = std::ranges::find(gone, static_cast<int64_t>(dim)) != gone.end();
    if (goes) form.inputs[0][dim] = kWholeDim;
    if (goes) continue;
    form.outputs[0].push_back(dims[dim]);
    form.strides.push_back(call.tensors()[0].stride(static_cast<int64_t>(dim)));
  }
  form.linear = {1};
}
void run_squeeze(OperatorCall& call, const Form&, const Strategy&) {
  call.finish(call[0].toTensor().squeeze(squeezed_dims(call)));
}

// Dimensions that repeat stay whole.
void expand(const OperatorCall& call, Form& form) {
  const Sizes to = call[1].toIntVector();
  const int64_t own = call.dims(0), more = std::ssize(to) - own;
  form.inputs = {whole_dims(own)};
  form.outputs = {whole_dims(std::ssize(to))};
  form.strides.assign(to.size(), 0);
  for (int64_t dim = 0; dim < own; ++dim) {
    if (to[more + dim] != -1 && to[more + dim] != call.sizes(0)[dim]) continue;
    form.inputs[0][dim] = form.outputs[0][more + dim] = static_cast<Factor>(dim);
    form.strides[more + dim] = call.tensors()[0].stride(dim);
  }
  form.linear = {1};
}
void adjust_expand(OperatorCall& call, const Form& form, const Strategy&) {
  Sizes to = call[1].toIntVector();
  for (size_t dim = 0; dim < to.size(); ++dim) {
    if (form.outputs[0][dim] != kWholeDim) to[dim] = -1;
  }
  call[1] = to;
}

// All dimensions but one of the result, which also lacks it where `drops`.
void without(const OperatorCall& call, Form& form, int64_t dim, bool drops) {
  Factors dims = factors(call.dims(0));
  dims[dim] = kWholeDim;
  form.inputs = {dims};
  if (drops) dims.erase(dims.begin() + dim);
  form.outputs = {dims};
  form.linear = {1};
}
void select(const OperatorCall& call, Form& form) {
  const int64_t dim = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  without(call, form, dim, true);
  form.strides = strides_of(call.tensors()[0]);
  form.strides.erase(form.strides.begin() + dim);
}
void slice(const OperatorCall& call, Form& form) {
  const int64_t dim = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  const bool takes_all = (call[2].isNone() || call[2].toInt() == 0) &&
                         (call[3].isNone() || call[3].toInt() >= call.sizes(0)[dim]) &&
                         call[4].toInt() == 1;
  without(call, form, dim, false);
  form.strides = strides_of(call.tensors()[0]);
  form.strides[dim] *= call[4].toInt();
  if (takes_all) form.inputs[0][dim] = form.outputs[0][dim] = static_cast<Factor>(dim);
}

// Gradients of the two: arguments are the gradient, the sizes of the result, the dimension.
void select_backward(const OperatorCall& call, Form& form) {
  const int64_t dims = call.dims(0) + 1, dim = c10::maybe_wrap_dim(call[2].toInt(), dims);
  Factors result = factors(dims);
  result[dim] = kWholeDim;
  form.outputs = {result};
  result.erase(result.begin() + dim);
  form.inputs = {result};
  form.linear = {1};
}
void slice_backward(const OperatorCall& call, Form& form) {
  without(call, form, c10::maybe_wrap_dim(call[2].toInt(), call.dims(0)), false);
}
void adjust_result_sizes(OperatorCall& call, const Form&, const Strategy& strategy) {
  call[1] = sizes_of_block(call, strategy.outputs[0], call[1].toIntVector());
}

// A list of results, which lie along one dimension.
void parts(const OperatorCall& call, Form& form) {
  without(call, form, c10::maybe_wrap_dim(call[2].toInt(), call.dims(0)), false);
  form.strides = strides_of(call.tensors()[0]);
}

// Results that may be written in place: sums must not share memory, see dispatch.cc.
void run_unsafe_parts(OperatorCall& call, const Form&, const Strategy&) {
  call.run_operator();
  std::vector<at::Tensor> own;
  for (const at::Tensor& part : torch::jit::pop(call.stack()).toTensorVector())
    own.push_back(part.clone());
  call.stack().emplace_back(std::move(own));
}

// What autograd asks for after a write to a view: the whole of a dense tensor in other sizes.
bool as_strided(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const Sizes sizes = call[1].toIntVector(), strides = call[2].toIntVector();
  int64_t count = 1;
  bool is_contiguous = true;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    is_contiguous &= sizes[dim] == 1 || strides[dim] == count;
    count *= sizes[dim];
  }
  const bool is_first = call[3].isNone() || call[3].toInt() == 0;
  TRIREME_CHECK(is_first && is_contiguous && count == x.numel() && x.is_contiguous(),
                call.described(), " asks for sizes ", c10::IntArrayRef(sizes), " and strides ",
                c10::IntArrayRef(strides),
                " of memory that is split, as autograd does after a "
                "write in place to a part of a tensor; write to a clone(), or use cat()");
  call.finish(x.view(sizes));
  return true;
}

}  // namespace

void add_view_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Adjust adjust = nullptr, Rule::Adjust run = nullptr) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = splits,
                     .make_form = form,
                     .adjust = adjust,
                     .run = run});
  };
  const auto compose = [&](const char* name, const char* splits, Rule::Compose function) {
    rules.push_back({.name = std::string("aten::") + name, .splits = splits, .compose = function});
  };
  constexpr const char* kAll = "all dims";
  constexpr const char* kJoined =
      "all dims that it keeps or joins; of dims that it parts, what a split lies between";
  constexpr const char* kOthers = "all dims but the one it runs along";
  for (const char* name : {"view", "_unsafe_view", "_reshape_alias"})
    add(name, kJoined, view, nullptr, run_view);
  add("permute", kAll, permute);
  add("transpose.int", kAll, transpose);
  add("t", kAll, t);
  add("unsqueeze", kAll, unsqueeze);
  for (const char* name : {"squeeze", "squeeze.dim", "squeeze.dims"})
    add(name, kAll, squeeze, nullptr, run_squeeze);
  add("expand", "all dims that do not repeat", expand, adjust_expand);
  compose("as_strided", "as view; other sizes and strides are refused", as_strided);
  add("select.int", kOthers, select);
  add("slice.Tensor", "all dims but the one that it cuts", slice);
  add("select_backward", kOthers, select_backward, adjust_result_sizes);
  add("slice_backward", kOthers, slice_backward, adjust_result_sizes);
  for (const char* name : {"split.Tensor", "split_with_sizes"}) add(name, kOthers, parts);
  for (const char* name : {"unsafe_split.Tensor", "unsafe_split_with_sizes"})
    add(name, kOthers, parts, nullptr, run_unsafe_parts);
}

}  // namespace trireme::spmd
