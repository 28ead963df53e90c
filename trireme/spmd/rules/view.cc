// Operators that move dimensions or elements about.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/InferSize.h>
#include <ATen/WrapDimUtils.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using Sizes = std::vector<int64_t>;

// Sizes of which those of dimensions that an axis splits become this rank's.
Sizes sizes_of_block(const OperatorCall& call, const Places& places, c10::IntArrayRef whole) {
  return local_sizes(*call.grid(), places, whole);
}

// The sizes that a view asks for.
Sizes asked_sizes(const OperatorCall& call) {
  const auto sizes = at::infer_size(call[1].toIntVector(), call.tensors()[0].numel());
  return {sizes.begin(), sizes.end()};
}

// Runs of dimensions with the same product, here and there: the first longer than 1 of each is
// split together.
void view(const OperatorCall& call, Form& form) {
  const c10::IntArrayRef from = call.sizes(0);
  const Sizes to = asked_sizes(call);
  form.inputs = {whole_dims(std::ssize(from))};
  form.outputs = {whole_dims(std::ssize(to))};
  form.input_scales.emplace_back(from.size(), 1);
  form.output_scales.assign(to.size(), 1);
  form.linear = {1};
  if (call.tensors()[0].numel() == 0) return;
  const auto lead = [](c10::IntArrayRef sizes, size_t begin, size_t end, int64_t& scale) {
    while (begin < end && sizes[begin] == 1) ++begin;
    scale = 1;
    for (size_t dim = begin + 1; dim < end; ++dim) scale *= sizes[dim];
    return begin;
  };
  Factor next = 0;
  for (size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    size_t i_end = i, j_end = j;
    int64_t there = 1, here = 1;
    do {
      if (here <= there && i_end < from.size()) {
        here *= from[i_end++];
      } else {
        there *= to[j_end++];
      }
    } while (here != there || j_end == j);
    int64_t in_scale = 1, out_scale = 1;
    const size_t in = lead(from, i, i_end, in_scale), out = lead(to, j, j_end, out_scale);
    if (in < i_end && out < j_end) {
      form.inputs[0][in] = form.outputs[0][out] = next++;
      form.input_scales[0][in] = in_scale;
      form.output_scales[out] = out_scale;
    }
    i = i_end;
    j = j_end;
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
  for (const int64_t dim : order)
    form.outputs[0].push_back(dims[c10::maybe_wrap_dim(dim, call.dims(0))]);
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
    if (!goes) form.outputs[0].push_back(dims[dim]);
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
  for (int64_t dim = 0; dim < own; ++dim) {
    if (to[more + dim] != -1 && to[more + dim] != call.sizes(0)[dim]) continue;
    form.inputs[0][dim] = form.outputs[0][more + dim] = static_cast<Factor>(dim);
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
  without(call, form, c10::maybe_wrap_dim(call[1].toInt(), call.dims(0)), true);
}
void slice(const OperatorCall& call, Form& form) {
  const int64_t dim = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  const bool takes_all = (call[2].isNone() || call[2].toInt() == 0) &&
                         (call[3].isNone() || call[3].toInt() >= call.sizes(0)[dim]) &&
                         call[4].toInt() == 1;
  without(call, form, dim, false);
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

void cat(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  dims[c10::maybe_wrap_dim(call[1].toInt(), call.dims(0))] = kWholeDim;
  form.inputs.assign(call.tensors().size(), dims);
  form.outputs = {dims};
  form.linear = {(1U << call.tensors().size()) - 1};
}
void stack(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  form.inputs.assign(call.tensors().size(), dims);
  dims.insert(dims.begin() + c10::maybe_wrap_dim(call[1].toInt(), call.dims(0) + 1), kWholeDim);
  form.outputs = {dims};
  form.linear = {(1U << call.tensors().size()) - 1};
}

void flip(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  for (const int64_t dim : call[1].toIntVector())
    dims[c10::maybe_wrap_dim(dim, call.dims(0))] = kWholeDim;
  form.inputs = {dims};
  form.outputs = {dims};
  form.linear = {1};
}

// Pairs of numbers from the last dimension on; the dimensions that they pad stay whole.
void pad(const OperatorCall& call, Form& form) {
  const Sizes amounts = call[1].toIntVector();
  Factors dims = factors(call.dims(0));
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    if (amounts[i] != 0 || amounts[i + 1] != 0) dims[dims.size() - 1 - i / 2] = kWholeDim;
  }
  form.inputs = {dims};
  form.outputs = {dims};
}

void last_two_whole(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  for (int64_t dim = call.dims(0) - 2; dim < call.dims(0); ++dim) dims[dim] = kWholeDim;
  form.inputs = {dims};
  form.outputs = {dims};
  form.linear = {1};
}

// self, dim, index [n]
void index_select(const OperatorCall& call, Form& form) {
  const int64_t dim = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  without(call, form, dim, false);
  form.inputs.push_back({static_cast<Factor>(call.dims(0))});
  form.outputs[0][dim] = static_cast<Factor>(call.dims(0));
}

// A list of results, which lie along one dimension.
void parts(const OperatorCall& call, Form& form) {
  without(call, form, c10::maybe_wrap_dim(call[2].toInt(), call.dims(0)), false);
}

// self, dim, index, source: what is written there lies along one dimension.
void scatter(const OperatorCall& call, Form& form) {
  const int64_t along = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  Factors dims = factors(call.dims(0));
  dims[along] = kWholeDim;
  for (size_t i = 1; i < call.tensors().size(); ++i) {
    for (int64_t dim = 0; dim < call.dims(0); ++dim) {
      if (call.dims(i) == call.dims(0) && call.sizes(i)[dim] != call.sizes(0)[dim])
        dims[dim] = kWholeDim;
    }
  }
  for (size_t i = 0; i < call.tensors().size(); ++i)
    form.inputs.push_back(call.dims(i) == call.dims(0) ? dims : whole_dims(call.dims(i)));
  form.outputs = {dims};
}

// self, dim, index: as many dimensions; those of other lengths stay whole.
void gather(const OperatorCall& call, Form& form) {
  const int64_t along = c10::maybe_wrap_dim(call[1].toInt(), call.dims(0));
  Factors from = factors(call.dims(0)), index = from;
  for (int64_t dim = 0; dim < call.dims(0); ++dim) {
    if (dim == along) {
      from[dim] = kWholeDim;
    } else if (call.sizes(0)[dim] != call.sizes(1)[dim]) {
      from[dim] = index[dim] = kWholeDim;
    }
  }
  form.inputs = {from, index};
  form.outputs = {index};
  form.linear = {1};
}

}  // namespace

void add_view_rules(Rules& rules) {
  const auto add = [&](const char* name, Rule::MakeForm form, Rule::Adjust adjust = nullptr,
                       Rule::Adjust run = nullptr) {
    rules.push_back(
        {.name = std::string("aten::") + name, .make_form = form, .adjust = adjust, .run = run});
  };
  for (const char* name : {"view", "_unsafe_view"}) add(name, view, nullptr, run_view);
  add("permute", permute);
  add("transpose.int", transpose);
  add("t", t);
  add("unsqueeze", unsqueeze);
  for (const char* name : {"squeeze", "squeeze.dim", "squeeze.dims"})
    add(name, squeeze, nullptr, run_squeeze);
  add("expand", expand, adjust_expand);
  add("select.int", select);
  add("slice.Tensor", slice);
  add("select_backward", select_backward, adjust_result_sizes);
  add("slice_backward", slice_backward, adjust_result_sizes);
  add("cat", cat);
  add("stack", stack);
  add("flip", flip);
  add("constant_pad_nd", pad);
  add("tril", last_two_whole);
  add("triu", last_two_whole);
  add("index_select", index_select);
  add("gather", gather);
  for (const char* name : {"split.Tensor", "split_with_sizes"}) add(name, parts);
  for (const char* name :
       {"scatter_.src", "scatter_add_", "index_add_", "scatter.src", "scatter_add", "index_add"}) {
    add(name, scatter);
  }
}

}  // namespace trireme::spmd
