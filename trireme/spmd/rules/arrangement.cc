// Operators that put elements together or elsewhere.
#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>

#include "trireme/base/error.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using Lengths = std::vector<int64_t>;

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
  const Lengths amounts = call[1].toIntVector();
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

// As many dimensions as `repeats` has, each repeated: [r0, s0, r1, s1, ...] joined in pairs.
bool repeat(const OperatorCall& call) {
  const Lengths repeats = call[1].toIntVector();
  const at::Tensor& x = call.tensors()[0];
  const int64_t more = std::ssize(repeats) - x.dim();
  TRIREME_CHECK(more >= 0, call.described(), " repeats ", repeats.size(),
                " dimensions; expected at least ", x.dim());
  Lengths apart, expanded, joined;
  for (size_t dim = 0; dim < repeats.size(); ++dim) {
    const int64_t own =
        static_cast<int64_t>(dim) < more ? 1 : x.size(static_cast<int64_t>(dim) - more);
    apart.insert(apart.end(), {1, own});
    expanded.insert(expanded.end(), {repeats[dim], own});
    joined.push_back(repeats[dim] * own);
  }
  call.finish(
      at::_unsafe_view(x.view(apart).expand(expanded).clone(at::MemoryFormat::Contiguous), joined));
  return true;
}

// self, shifts, dims: those dimensions stay whole; none are given: all
void roll(const OperatorCall& call, Form& form) {
  const Lengths moved = call[2].toIntVector();
  Factors dims = moved.empty() ? whole_dims(call.dims(0)) : factors(call.dims(0));
  for (const int64_t dim : moved) dims[c10::maybe_wrap_dim(dim, call.dims(0))] = kWholeDim;
  form.inputs = {dims};
  form.outputs = {dims};
  form.linear = {1};
}

}  // namespace

void add_arrangement_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form) {
    rules.push_back({.name = std::string("aten::") + name, .splits = splits, .make_form = form});
  };
  add("cat", "all dims but the one it runs along", cat);
  add("stack", "all dims", stack);
  add("flip", "all dims that are not flipped", flip);
  add("roll", "all dims that are not rolled", roll);
  add("constant_pad_nd", "all dims that are not padded", pad);
  add("tril", "all dims but the last two", last_two_whole);
  add("triu", "all dims but the last two", last_two_whole);
  rules.push_back({.name = "aten::repeat",
                   .splits = "all dims; repeated ones are gathered",
                   .compose = repeat});
}

}  // namespace trireme::spmd
