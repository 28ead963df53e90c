// Operators that treat elements alike: a dimension is split as its arguments' are.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

int64_t most_dims(const OperatorCall& call) {
  int64_t most = 0;
  for (size_t i = 0; i < call.tensors().size(); ++i) most = std::max(most, call.dims(i));
  return most;
}

// Dimensions are aligned at the last. One of length 1 repeats where another is longer.
void elements(const OperatorCall& call, Form& form) {
  const int64_t dims = most_dims(call);
  c10::SmallVector<int64_t, 6> longest(dims, 1);
  for (size_t i = 0; i < call.tensors().size(); ++i) {
    for (int64_t dim = 0, own = call.dims(i); dim < own; ++dim) {
      auto& length = longest[dims - own + dim];
      if (length == 1) length = call.sizes(i)[dim];
    }
  }
  for (size_t i = 0; i < call.tensors().size(); ++i) {
    const int64_t own = call.dims(i);
    Factors own_factors = factors(own, static_cast<int>(dims - own));
    for (int64_t dim = 0; dim < own; ++dim) {
      if (call.sizes(i)[dim] != longest[dims - own + dim]) own_factors[dim] = kWholeDim;
    }
    form.inputs.push_back(std::move(own_factors));
  }
  form.outputs.assign(call.op().schema().returns().size(), factors(dims));
  form.keeps_order = true;
}

// The last argument is where the result goes.
void elements_out(const OperatorCall& call, Form& form) {
  elements(call, form);
  const size_t out = call.tensors().size() - 1;
  for (size_t i = 0; i < out; ++i) {
    TRIREME_CHECK(call.dims(i) <= call.dims(out), call.described(),
                  " puts its result into a tensor of other sizes; expected those of the result");
  }
  for (size_t dim = 0; dim < form.inputs[out].size(); ++dim) {
    TRIREME_CHECK(form.inputs[out][dim] != kWholeDim, call.described(),
                  " puts its result into a tensor of other sizes; expected those of the result");
  }
}

void linear_in_all(const OperatorCall& call, Form& form) {
  elements(call, form);
  form.linear.push_back((1U << form.inputs.size()) - 1);
}

void linear_in_first(const OperatorCall& call, Form& form) {
  elements(call, form);
  form.linear.push_back(1);
}

void linear_in_each(const OperatorCall& call, Form& form) {
  elements(call, form);
  for (size_t i = 0; i < form.inputs.size(); ++i) form.linear.push_back(1U << i);
}

// self + value * a * b
void linear_in_first_and_one_of_two(const OperatorCall& call, Form& form) {
  elements(call, form);
  form.linear.push_back(0b011);
  form.linear.push_back(0b101);
}

constexpr const char* kOther[] = {"abs",
                                  "abs_",
                                  "exp",
                                  "exp_",
                                  "log",
                                  "log_",
                                  "log1p",
                                  "log2",
                                  "expm1",
                                  "sqrt",
                                  "sqrt_",
                                  "rsqrt",
                                  "rsqrt_",
                                  "sin",
                                  "cos",
                                  "tan",
                                  "tanh",
                                  "tanh_",
                                  "sigmoid",
                                  "sigmoid_",
                                  "erf",
                                  "erfinv",
                                  "relu",
                                  "relu_",
                                  "gelu",
                                  "silu",
                                  "silu_",
                                  "mish",
                                  "hardtanh",
                                  "hardtanh_",
                                  "hardswish",
                                  "hardsigmoid",
                                  "elu",
                                  "elu_",
                                  "leaky_relu",
                                  "leaky_relu_",
                                  "softplus",
                                  "threshold",
                                  "threshold_",
                                  "reciprocal",
                                  "reciprocal_",
                                  "sign",
                                  "floor",
                                  "ceil",
                                  "round",
                                  "trunc",
                                  "isnan",
                                  "isinf",
                                  "logical_not",
                                  "bitwise_not",
                                  "clamp",
                                  "clamp_",
                                  "clamp.Tensor",
                                  "clamp_min",
                                  "clamp_min_",
                                  "clamp_max",
                                  "add.Scalar",
                                  "sub.Scalar",
                                  "rsub.Scalar",
                                  "pow.Tensor_Scalar",
                                  "pow_.Scalar",
                                  "pow.Tensor_Tensor",
                                  "pow.Scalar",
                                  "maximum",
                                  "minimum",
                                  "fmod.Scalar",
                                  "remainder.Scalar",
                                  "remainder.Tensor",
                                  "atan2",
                                  "eq.Tensor",
                                  "ne.Tensor",
                                  "lt.Tensor",
                                  "le.Tensor",
                                  "gt.Tensor",
                                  "ge.Tensor",
                                  "eq.Scalar",
                                  "ne.Scalar",
                                  "lt.Scalar",
                                  "le.Scalar",
                                  "gt.Scalar",
                                  "ge.Scalar",
                                  "logical_and",
                                  "logical_and_",
                                  "logical_or_",
                                  "logical_not_",
                                  "logical_xor_",
                                  "log_sigmoid_forward",
                                  "logical_or",
                                  "logical_xor",
                                  "bitwise_and.Tensor",
                                  "bitwise_or.Tensor",
                                  "where.self",
                                  "masked_fill.Scalar",
                                  "masked_fill_.Scalar",
                                  "masked_fill.Tensor",
                                  "addcdiv",
                                  "addcdiv_",
                                  "lerp.Tensor",
                                  "lerp.Scalar",
                                  "lerp_.Scalar",
                                  "fill_.Scalar",
                                  "fill.Scalar",
                                  "xlogy.Tensor",
                                  "sinh",
                                  "cosh",
                                  "asin",
                                  "acos",
                                  "atan",
                                  "asinh",
                                  "acosh",
                                  "atanh",
                                  "erfc",
                                  "exp2",
                                  "log10",
                                  "sgn",
                                  "frac",
                                  "logit",
                                  "nan_to_num",
                                  "softshrink",
                                  "hardshrink",
                                  "celu",
                                  "clamp_min.Tensor",
                                  "clamp_max.Tensor",
                                  "gelu_",
                                  "mish_",
                                  "hardswish_",
                                  "hardsigmoid_",
                                  "floor_divide",
                                  "div.Tensor_mode",
                                  "div.Scalar_mode",
                                  "bitwise_xor.Tensor",
                                  "bitwise_left_shift.Tensor",
                                  "bitwise_left_shift.Tensor_Scalar",
                                  "bitwise_right_shift.Tensor",
                                  "bitwise_right_shift.Tensor_Scalar",
                                  "__lshift__.Scalar",
                                  "__rshift__.Scalar",
                                  "add_.Scalar",
                                  "sub_.Scalar",
                                  "lerp_.Tensor",
                                  "fill_.Tensor",
                                  "masked_fill_.Tensor",
                                  "_prelu_kernel",
                                  "heaviside"};
constexpr const char* kLinearInAll[] = {
    "add.Tensor", "add_.Tensor", "sub.Tensor", "sub_.Tensor", "neg",     "neg_",
    "mul.Scalar", "mul_.Scalar", "div.Scalar", "div_.Scalar", "clone",   "_to_copy",
    "copy_",      "alias",       "detach",     "zero_",       "detach_", "lift_fresh"};
constexpr const char* kLinearInEach[] = {"mul.Tensor", "mul_.Tensor"};
constexpr const char* kLinearInFirst[] = {
    "div.Tensor",           "div_.Tensor",         "gelu_backward",
    "log_sigmoid_backward", "silu_backward",       "tanh_backward",
    "sigmoid_backward",     "threshold_backward",  "leaky_relu_backward",
    "elu_backward",         "hardtanh_backward",   "hardswish_backward",
    "hardsigmoid_backward", "mish_backward",       "native_dropout_backward",
    "softplus_backward",    "softshrink_backward", "hardshrink_backward",
    "logit_backward"};

}  // namespace

void add_pointwise_rules(Rules& rules) {
  const auto add = [&](auto& names, const char* splits, Rule::MakeForm form) {
    for (const char* name : names)
      rules.push_back({.name = std::string("aten::") + name, .splits = splits, .make_form = form});
  };
  add(kOther, "all dims", elements);
  add(kLinearInAll, "all dims; partial sums, if all are", linear_in_all);
  add(kLinearInEach, "all dims; partial sums in one factor", linear_in_each);
  add(kLinearInFirst, "all dims; partial sums in the first", linear_in_first);
  constexpr const char* const kOut[] = {"add.out",     "sub.out",     "mul.out", "div.out",
                                        "maximum.out", "minimum.out", "sqrt.out"};
  add(kOut, "all dims", elements_out);
  constexpr const char* const kFused[] = {"addcmul", "addcmul_"};
  add(kFused, "all dims; partial sums in the first and one factor", linear_in_first_and_one_of_two);
  rules.push_back(
      {.name = "aten::_prelu_kernel_backward", .splits = "all dims", .make_form = linear_in_first});
}

}  // namespace trireme::spmd
