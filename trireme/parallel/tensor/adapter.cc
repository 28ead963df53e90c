#include "trireme/parallel/tensor/adapter.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/machine/matrix_product.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AdapterCall : torch::CustomClassHolder {
  double scale = 1;
  AdapterSum sum = AdapterSum::kNew;
  TensorAxis axis;
};

class AdapterSumFunction : public torch::autograd::Function<AdapterSumFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const at::Tensor& z,
                            const at::Tensor& b, const c10::intrusive_ptr<AdapterCall>& call) {
    const at::Tensor scaled_Sr = view_rows(z) * call->scale;
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({scaled_Sr, b});
    at::Tensor sum = y;
    if (call->sum == AdapterSum::kInPlace) {
      ctx->mark_dirty({y});
    } else {
      sum = at::empty_like(y, at::MemoryFormat::Contiguous);
    }
    multiply_and_add(view_rows(sum), view_rows(y), scaled_Sr, b.t());
    return sum;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<AdapterCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor scaled_Sr = saved[0], b = saved[1];
    const at::Tensor grad_SF = view_rows(grads[0]);
    variable_list result{grads[0], at::Tensor(), at::Tensor(), at::Tensor()};
    if (ctx->needs_input_grad(1)) {
      std::vector<int64_t> shape = grads[0].sizes().vec();
      shape.back() = b.size(1);
      const at::Tensor grad_Sr = at::empty({grad_SF.size(0), b.size(1)}, grad_SF.options());
      multiply(grad_Sr, grad_SF, b);
      result[1] = grad_Sr.mul_(call->scale).view(shape);
    }
    if (ctx->needs_input_grad(2)) {
      result[2] =
          weight_gradient(call->axis, b, [=] { return weight_product(b, grad_SF, scaled_Sr); });
    }
    return result;
  }
};

// The squares of the lengths of the rows of W and of W + scale B A: [2, out], fp32 at least.
at::Tensor squared_lengths(const LinearWeight& layer) {
  constexpr int64_t kChunk = int64_t{1} << 20;  // elements of the weight at a time
  const at::ScalarType dtype = at::promote_types(layer.adapter.a.scalar_type(), at::kFloat);
  const at::Tensor a = layer.adapter.a.to(dtype);
  const at::Tensor squares = at::empty({2, layer.rows()}, a.options());
  const int64_t at_once = std::max<int64_t>(kChunk / std::max<int64_t>(layer.columns(), 1), 1);
  for (int64_t row = 0; row < layer.rows(); row += at_once) {
    const int64_t rows = std::min(at_once, layer.rows() - row);
    const at::Tensor own =
        layer.weight.defined()
            ? layer.weight.narrow(0, row, rows).to(dtype)
            : decode(layer.codes.narrow_rows(row, rows), layer.adapter.a.scalar_type()).to(dtype);
    const at::Tensor sum = at::addmm(own, layer.adapter.b.narrow(0, row, rows).to(dtype), a,
                                     /*beta=*/1, layer.adapter.scale);
    squares[0].narrow(0, row, rows).copy_(own.square().sum(1));
    squares[1].narrow(0, row, rows).copy_(sum.square().sum(1));
  }
  return squares;
}

}  // namespace

at::Tensor magnitude_gain(const LinearWeight& layer, AdapterRows rows, const TensorAxis& axis) {
  at::Tensor lengths;
  {
    const at::NoGradGuard constant;
    const at::Tensor squares = squared_lengths(layer);
    if (rows == AdapterRows::kCut && axis.size() > 1) axis.group->all_reduce(squares)->wait();
    lengths = squares.sqrt_();
  }
  // A row of zeros stays one.
  const double least = std::numeric_limits<float>::min();
  const at::Tensor magnitude = layer.adapter.magnitude.to(lengths.scalar_type()) + lengths[0];
  return (magnitude / lengths[1].clamp_min(least)).to(layer.adapter.magnitude.scalar_type());
}

at::Tensor add_adapter(const at::Tensor& y, const at::Tensor& z, const at::Tensor& b, double scale,
                       const TensorAxis& axis, AdapterSum sum) {
  auto call = c10::make_intrusive<AdapterCall>();
  call->scale = scale;
  call->sum = sum;
  call->axis = axis;
  return AdapterSumFunction::apply(y, z, b, call);
}

}  // namespace trireme::parallel
