// Sums, other reductions over dimensions, and what keeps a dimension whole, such as softmax.
#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>

#include "trireme/base/error.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

// Bit d: dimension d is reduced. None or an empty list: all are.
uint64_t reduced_dims(const c10::IValue& value, int64_t dims) {
  std::vector<int64_t> listed;
  if (value.isInt()) listed = {value.toInt()};
  if (value.isIntList()) listed = value.toIntVector();
  if (listed.empty()) return ~uint64_t{0};
  uint64_t set = 0;
  for (const int64_t dim : listed) set |= uint64_t{1} << c10::maybe_wrap_dim(dim, dims);
  return set;
}

// A reduced dimension is left out, or stays with length 1.
Factors reduced(const Factors& dims, uint64_t set, bool keep) {
  Factors result;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    const bool is_reduced = (set >> dim & 1U) != 0;
    if (!is_reduced) result.push_back(dims[dim]);
    if (is_reduced && keep) result.push_back(kWholeDim);
  }
  return result;
}

void sum_over(const OperatorCall& call, Form& form, uint64_t set, bool keep) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims};
  form.outputs = {reduced(dims, set, keep)};
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if ((set >> dim & 1U) != 0) form.contracted |= 1U << dim;
  }
  form.linear = {1};
}
void sum(const OperatorCall& call, Form& form) { sum_over(call, form, ~uint64_t{0}, false); }
void sum_dims(const OperatorCall& call, Form& form) {
  sum_over(call, form, reduced_dims(call[1], call.dims(0)), call[2].toBool());
}

// Dimensions of the set stay whole and are reduced in all results.
void reduce_whole(const OperatorCall& call, Form& form, uint64_t set, bool keep) {
  Factors dims = factors(call.dims(0));
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if ((set >> dim & 1U) != 0) dims[dim] = kWholeDim;
  }
  form.inputs = {dims};
  form.outputs.assign(call.op().schema().returns().size(), reduced(dims, set, keep));
}
void whole(const OperatorCall& call, Form& form) { reduce_whole(call, form, ~uint64_t{0}, false); }
void dims_whole(const OperatorCall& call, Form& form) {
  reduce_whole(call, form, reduced_dims(call[1], call.dims(0)), call[2].toBool());
}
void var(const OperatorCall& call, Form& form) {
  reduce_whole(call, form, reduced_dims(call[1], call.dims(0)), call[3].toBool());
}
void vector_norm(const OperatorCall& call, Form& form) {
  reduce_whole(call, form, reduced_dims(call[2], call.dims(0)), call[3].toBool());
}

// One dimension stays whole; arguments and results have the same shape.
void along(const OperatorCall& call, Form& form, size_t dim_argument) {
  Factors dims = factors(call.dims(0));
  if (!dims.empty()) {
    dims[c10::maybe_wrap_dim(call[dim_argument].toInt(), call.dims(0))] = kWholeDim;
  }
  form.inputs.assign(call.tensors().size(), dims);
  form.outputs.assign(call.op().schema().returns().size(), dims);
}
void along_first(const OperatorCall& call, Form& form) { along(call, form, 1); }
void cumsum(const OperatorCall& call, Form& form) {
  along(call, form, 1);
  form.linear = {1};
}
void along_second(const OperatorCall& call, Form& form) { along(call, form, 2); }
// grad, self, dim
void glu_backward(const OperatorCall& call, Form& form) {
  along(call, form, 2);
  form.linear = {1};
}

// Norms over split dims: sums over ranks of what each adds, for the orders where that is so.
bool norm(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const double order = call[1].toScalar().toDouble();
  const PlacedMeta* meta = placed(x);
  const uint64_t set = reduced_dims(call[2], x.dim());
  bool is_split = false;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    is_split |= (set >> dim & 1U) != 0 && num_splits(meta->places, static_cast<int>(dim)) > 0;
  }
  if (!is_split || (order != 1 && order != 2)) return false;
  const auto type = call[4].isNone() ? std::nullopt : std::optional(call[4].toScalarType());
  const at::Tensor own = summed(type ? x.to(*type) : x);
  const at::Tensor terms = order == 1 ? own.abs() : own * own;
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if ((set >> dim & 1U) != 0) dims.push_back(dim);
  }
  const at::Tensor total = summed(terms.sum(dims, call[3].toBool()));
  call.finish(order == 1 ? total : total.sqrt());
  return true;
}

int64_t count_of(const at::Tensor& tensor, const c10::IValue& dims) {
  const uint64_t set = reduced_dims(dims, tensor.dim());
  int64_t count = 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if ((set >> dim & 1U) != 0) count *= tensor.size(dim);
  }
  return count;
}
bool mean(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const auto dtype = call[1].toOptional<at::ScalarType>();
  call.finish(at::sum(x, dtype).div(static_cast<double>(x.numel())));
  return true;
}
bool mean_dims(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const auto dtype = call[3].toOptional<at::ScalarType>();
  const double count = static_cast<double>(count_of(x, call[1]));
  at::Tensor total;
  if (call[1].isNone()) {
    total = at::sum(x, at::OptionalIntArrayRef(), call[2].toBool(), dtype);
  } else {
    total = at::sum(x, call[1].toIntVector(), call[2].toBool(), dtype);
  }
  call.finish(total.div(count));
  return true;
}

// self, order, and where there are more: dims, whether they stay, dtype
template <bool kHasDims>
bool old_norm(const OperatorCall& call) {
  const at::Scalar order = call[1].isNone() ? at::Scalar(2) : call[1].toScalar();
  const std::vector<int64_t> dims = kHasDims ? call[2].toIntVector() : std::vector<int64_t>();
  const bool keeps = kHasDims && call[3].toBool();
  const at::Tensor& x = call.tensors()[0];
  call.finish(dims.empty() ? at::linalg_vector_norm(x, order, std::nullopt, keeps)
                           : at::linalg_vector_norm(x, order, dims, keeps));
  return true;
}

bool scalar(const OperatorCall& call) {
  const at::Tensor tensor = call.tensors()[0];
  const PlacedMeta* meta = placed(tensor);
  for (int axis = 0; axis < meta->grid->num_axes(); ++axis) {
    TRIREME_CHECK(meta->places[axis].is_replicated(), "item() on a tensor placed ",
                  to_string(*meta->grid, meta->places),
                  "; read whole_of() of it, which every rank calls");
  }
  call.finish(meta->local.item());
  return true;
}

}  // namespace

void add_reduction_rules(Rules& rules) {
  constexpr const char* kSums = "all dims; over reduced ones the result is a partial sum";
  constexpr const char* kKept = "dims that are not reduced";
  constexpr const char* kAlong = "all dims but the one it runs along";
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Compose compose = nullptr) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = splits,
                     .make_form = form,
                     .compose = compose});
  };
  add("sum", kSums, sum);
  add("sum.dim_IntList", kSums, sum_dims);
  for (const char* name : {"amax", "amin", "max.dim", "min.dim", "argmax", "argmin", "logsumexp",
                           "any.dim", "all.dim", "prod.dim_int", "median.dim", "mode"}) {
    add(name, kKept, dims_whole);
  }
  for (const char* name : {"max", "min", "any", "all", "prod", "median"}) add(name, kKept, whole);
  add("var.correction", kKept, var);
  add("std.correction", kKept, var);
  add("linalg_vector_norm", "all dims for orders 1 and 2, else those that are not reduced",
      vector_norm, norm);
  add("norm.ScalarOpt_dim", "as linalg_vector_norm", nullptr, old_norm<true>);
  add("norm.Scalar", "as linalg_vector_norm", nullptr, old_norm<false>);
  add("sort", kAlong, along_first);
  add("sort.stable", kAlong, along_second);
  add("cumsum", kAlong, cumsum);
  add("cumprod", kAlong, along_first);
  add("topk", kAlong, along_second);
  add("glu", kAlong, along_first);
  add("glu_backward", kAlong, glu_backward);
  add("mean", kSums, nullptr, mean);
  add("mean.dim", kSums, nullptr, mean_dims);
  add("_local_scalar_dense", "none: item() of a split value is refused", nullptr, scalar);
}

}  // namespace trireme::spmd
