// Reads and writes at indices: what they run along stays whole.
#include <algorithm>

#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

int64_t wrapped(const OperatorCall& call, size_t argument) {
  return c10::maybe_wrap_dim(call[argument].toInt(), call.dims(0));
}

// self, dim, index [n]
void index_select(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims, {static_cast<Factor>(call.dims(0))}};
  form.outputs = {dims};
  form.linear = {1};
  if (dims.empty()) {
    form.inputs[1] = whole_dims(call.dims(1));
    return;
  }
  const int64_t dim = wrapped(call, 1);
  form.inputs[0][dim] = kWholeDim;
  form.outputs[0][dim] = static_cast<Factor>(call.dims(0));
  if (call.dims(1) == 0) form.inputs[1] = {};
}

// self, dim, index, and a source: as many dimensions as self, of which those of other lengths stay
// whole.
void scatter(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  if (!dims.empty()) dims[wrapped(call, 1)] = kWholeDim;
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
// self, dim, index [n], source: in the source, too, only `dim` has another length
void index_add(const OperatorCall& call, Form& form) {
  Factors dims = factors(call.dims(0));
  if (!dims.empty()) dims[wrapped(call, 1)] = kWholeDim;
  form.inputs = {dims, whole_dims(call.dims(1))};
  if (call.tensors().size() > 2)
    form.inputs.push_back(call.dims(2) == call.dims(0) ? dims : whole_dims(call.dims(2)));
  form.outputs = {dims};
}

// self, dim, index: as many dimensions; those of other lengths stay whole.
void gather(const OperatorCall& call, Form& form) {
  Factors from = factors(call.dims(0)), index = factors(call.dims(1));
  const int64_t along = call.dims(0) == 0 ? 0 : wrapped(call, 1);
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

// Where indices (a tensor or none for each dimension) read or write: the dimensions that they take
// are replaced by those of the indices, in front unless they lie side by side. Indices are split
// where there is one tensor of numbers.
class Indexed {
 public:
  // The indices are tensors 1 to `last` of the call, self is its tensor 0.
  Indexed(const OperatorCall& call, size_t last) : self_(factors(call.dims(0))) {
    int64_t dim = 0, begin = -1, end = -1, count = 0, dims = 0;
    bool is_apart = false, has_mask = false;
    for (size_t i = 1; i <= last; ++i) {
      const at::Tensor& index = call.tensors()[i];
      if (!index.defined()) {
        ++dim;
        continue;
      }
      const bool is_mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
      const int64_t taken = is_mask ? index.dim() : 1;
      has_mask |= is_mask;
      ++count;
      dims = std::max(dims, is_mask ? int64_t{1} : index.dim());
      is_apart |= end >= 0 && end != dim;
      if (begin < 0) begin = dim;
      for (int64_t d = dim; d < dim + taken; ++d) self_[d] = kWholeDim;
      dim += taken;
      end = dim;
    }
    if (count == 1 && !has_mask) {
      indices_ = factors(dims, kFirstIndexDim);
    } else {
      indices_ = whole_dims(dims);
    }
    const int64_t at = is_apart ? 0 : std::max<int64_t>(begin, 0);
    for (int64_t d = 0; d <= call.dims(0); ++d) {
      if (d == at) result_.append(indices_.begin(), indices_.end());
      if (d < call.dims(0) && self_[d] != kWholeDim) result_.push_back(self_[d]);
    }
  }

  const Factors& self() const { return self_; }
  const Factors& result() const { return result_; }
  Factors index(const at::Tensor& tensor) const {
    if (!tensor.defined()) return {};
    return tensor.dim() == std::ssize(indices_) && tensor.scalar_type() != at::kBool
               ? indices_
               : whole_dims(tensor.dim());
  }

 private:
  static constexpr int kFirstIndexDim = 16;
  Factors self_, indices_{}, result_{};
};

// self, indices -> the elements there
void index(const OperatorCall& call, Form& form) {
  const size_t last = call.tensors().size() - 1;
  const Indexed indexed(call, last);
  form.inputs = {indexed.self()};
  for (size_t i = 1; i <= last; ++i) form.inputs.push_back(indexed.index(call.tensors()[i]));
  form.outputs = {indexed.result()};
  form.linear = {1};
}
// self, indices, values, accumulate: every rank writes all values of what it has
void index_put(const OperatorCall& call, Form& form) {
  const size_t values = call.tensors().size() - 1;
  const Indexed indexed(call, values - 1);
  form.inputs = {indexed.self()};
  for (size_t i = 1; i < values; ++i) form.inputs.push_back(whole_dims(call.dims(i)));
  Factors& written = form.inputs.emplace_back(whole_dims(call.dims(values)));
  const Factors& result = indexed.result();
  const int64_t more = std::ssize(result) - std::ssize(written);
  for (int64_t dim = std::max<int64_t>(-more, 0); dim < std::ssize(written); ++dim) {
    const Factor factor = result[more + dim];
    if (factor < 0 || factor >= call.dims(0)) continue;
    if (call.sizes(values)[dim] == call.sizes(0)[factor]) written[dim] = factor;
  }
  form.outputs = {indexed.self()};
}

}  // namespace

void add_index_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form) {
    rules.push_back({.name = std::string("aten::") + name, .splits = splits, .make_form = form});
  };
  constexpr const char* kOthers = "all dims but the indexed one";
  add("index_select", "all dims, and the index", index_select);
  add("gather", "all dims of equal length; of the index, the indexed one too", gather);
  for (const char* name :
       {"scatter_.src", "scatter_.value", "scatter_add_", "scatter.src", "scatter.value",
        "scatter_add", "scatter_reduce.two", "scatter_reduce_.two"}) {
    add(name, "all dims of equal length but the indexed one", scatter);
  }
  for (const char* name : {"index_add_", "index_add", "index_fill_.int_Scalar",
                           "index_fill.int_Scalar", "index_copy_", "index_copy"}) {
    add(name, kOthers, index_add);
  }
  add("index.Tensor", "all dims that are not indexed; the index where there is one", index);
  for (const char* name : {"index_put_", "index_put", "_index_put_impl_"})
    add(name, "all dims that are not indexed", index_put);
}

}  // namespace trireme::spmd
