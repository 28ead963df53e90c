#include "trireme/parallel/tensor/split_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitNormCall : torch::CustomClassHolder {
  TensorAxis axis;
  std::vector<int64_t> widths;
  double epsilon = 0;
  double offset = 0;
};

at::Tensor widen(const at::Tensor& x) {
  return x.to(at::promote_types(x.scalar_type(), at::kFloat));
}

// [S] of the rows of x -> [..., 1]
at::Tensor beside(const at::Tensor& x, const at::Tensor& numbers_S) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  return numbers_S.view(shape);
}

// A sum for each row and norm, over the ranks: of each [S] -> [n, S].
at::Tensor sum_over_ranks(const std::vector<at::Tensor>& sums, const TensorAxis& axis) {
  at::Tensor all_NS = at::stack(sums);
  if (axis.size() == 1) return all_NS;
  const auto start = MovingRows::Clock::now();
  comm::WorkPtr work = axis.group->all_reduce(all_NS, {});
  return MovingRows(axis, all_NS, std::move(work), start).wait();
}

// tensors: x of each norm, and then the weight of each.
class SplitNormFunction : public torch::autograd::Function<SplitNormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<SplitNormCall>& call,
                               at::TensorList tensors) {
    const size_t n = call->widths.size();
    std::vector<at::Tensor> squares;
    for (size_t i = 0; i < n; ++i) squares.push_back(widen(tensors[i]).square().sum(-1).flatten());
    const at::Tensor sums_NS = sum_over_ranks(squares, call->axis);
    variable_list saved(tensors.begin(), tensors.end()), results;
    for (size_t i = 0; i < n; ++i) {
      const at::Tensor& x = tensors[i];
      const at::Tensor mean_S = sums_NS[static_cast<int64_t>(i)] / call->widths[i];
      const at::Tensor scale = beside(x, (mean_S + call->epsilon).rsqrt());
      // No view: rotary positions turn it in place.
      results.push_back(
          (widen(x) * scale * (widen(tensors[n + i]) + call->offset)).to(x.scalar_type()));
      saved.push_back(scale);
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return results;
  }

  // With g = grad_y * (offset + weight): grad_x = r g - x r^3 mean(g x); grad_weight = sum of
  // grad_y x r over rows.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<SplitNormCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const size_t n = call->widths.size();
    std::vector<at::Tensor> g, products;
    for (size_t i = 0; i < n; ++i) {
      g.push_back(widen(grads[i]) * (widen(saved[n + i]) + call->offset));
      products.push_back((g[i] * widen(saved[i])).sum(-1).flatten());
    }
    const at::Tensor sums_NS = sum_over_ranks(products, call->axis);
    variable_list result{at::Tensor()}, of_weights;
    for (size_t i = 0; i < n; ++i) {
      const at::Tensor x = widen(saved[i]);
      const at::Tensor& r = saved[2 * n + i];
      const at::Tensor mean = beside(x, sums_NS[static_cast<int64_t>(i)] / call->widths[i]);
      result.push_back((r * g[i] - x * (r.pow(3) * mean)).to(saved[i].scalar_type()));
      of_weights.push_back(
          view_rows(widen(grads[i]) * x * r).sum(0).to(saved[n + i].scalar_type()));
    }
    result.insert(result.end(), of_weights.begin(), of_weights.end());
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> split_rms_norm(const std::vector<SplitNorm>& norms, double epsilon,
                                       double offset, const TensorAxis& axis) {
  auto call = c10::make_intrusive<SplitNormCall>();
  call->axis = axis;
  call->epsilon = epsilon;
  call->offset = offset;
  std::vector<at::Tensor> tensors;
  for (const SplitNorm& norm : norms) {
    TRIREME_ASSERT(norm.x.size(-1) == norm.weight.numel() && norm.width >= norm.weight.numel(),
                   "a norm of ", norm.x.sizes(), " with ", norm.weight.numel(), " weights of ",
                   norm.width);
    call->widths.push_back(norm.width);
    tensors.push_back(norm.x);
  }
  for (const SplitNorm& norm : norms) tensors.push_back(norm.weight);
  return SplitNormFunction::apply(call, at::TensorList(tensors));
}

}  // namespace trireme::parallel
