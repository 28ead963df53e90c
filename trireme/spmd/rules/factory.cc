// Tensors made after the model of others. They need no values of it: a partial sum is not summed.
#include <ATen/Functions.h>

#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

Places without_partial(Places places) {
  for (Place& place : places) {
    if (place.is_partial()) place = Place();
  }
  return places;
}

// Runs the operator on the block, and places what it makes like the tensor.
void run_on_block(const OperatorCall& call, const PlacedMeta& meta, c10::IntArrayRef strides) {
  {
    const OnBlocks on_blocks;
    call[0] = meta.local;
    call.run_operator();
  }
  const at::Tensor block = torch::jit::pop(call.stack()).toTensor();
  call.stack().emplace_back(
      place_block(meta.grid, block, without_partial(meta.places), call.sizes(0), strides));
}
bool like(const OperatorCall& call) {
  const auto strides = strides_of_result(call, 0);
  run_on_block(call, *placed(call.tensors()[0]), strides);
  return true;
}

// self, sizes, ...: of the sizes of self, placed like it; of others, whole on each rank
template <bool kHasStrides>
bool new_tensor(const OperatorCall& call) {
  const PlacedMeta& meta = *placed(call.tensors()[0]);
  const std::vector<int64_t> sizes = call[1].toIntVector();
  if (call.sizes(0) != c10::IntArrayRef(sizes)) {
    const OnBlocks on_blocks;
    call[0] = meta.local;
    call.run_operator();
    return true;
  }
  std::vector<int64_t> strides;
  if (kHasStrides) {
    strides = call[2].toIntVector();
    const auto dense = dense_strides(meta.local.sizes(), strides);
    call[2] = std::vector<int64_t>(dense.begin(), dense.end());
  }
  call[1] = meta.local.sizes();
  run_on_block(call, meta, strides);
  return true;
}

// For a trace: a result of the same sizes is split as self.
void same_sizes(const OperatorCall& call, Form& form) {
  form.inputs = {factors(call.dims(0))};
  form.outputs = {form.inputs[0]};
}
void asked_sizes_of_new(const OperatorCall& call, Form& form) {
  if (call.sizes(0) == c10::IntArrayRef(call[1].toIntVector())) return same_sizes(call, form);
  form.inputs = {whole_dims(call.dims(0))};
  form.outputs = {whole_dims(std::ssize(call[1].toIntVector()))};
}

}  // namespace

void add_factory_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Compose compose) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = splits,
                     .make_form = form,
                     .compose = compose,
                     .composes_blocks = true});
  };
  for (const char* name : {"empty_like", "zeros_like", "ones_like", "full_like"})
    add(name, "all dims", same_sizes, like);
  constexpr const char* kSame = "all dims, where the sizes are the same";
  for (const char* name : {"new_empty", "new_zeros", "new_ones", "new_full"})
    add(name, kSame, asked_sizes_of_new, new_tensor<false>);
  add("new_empty_strided", kSame, asked_sizes_of_new, new_tensor<true>);
}

}  // namespace trireme::spmd
