#include "trireme/tasks/recommend/layers/pair_products.h"

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSamplesPerTask = 32;

// The kernels' form of [B, ...] tensors.
template <typename scalar>
PairProblem<scalar> pairs_of(const at::Tensor& dense_BD, const at::Tensor& embedded_BW, int64_t D) {
  const bool has_dense = dense_BD.defined();
  return {.N = embedded_BW.size(1) / D + (has_dense ? 1 : 0),
          .D = D,
          .has_dense = has_dense,
          .dense = has_dense ? dense_BD.const_data_ptr<scalar>() : nullptr,
          .embedded = embedded_BW.const_data_ptr<scalar>()};
}

template <typename scalar, typename Kernel>
void run_samples(const PairProblem<scalar>& problem, int64_t B, const Kernel& kernel) {
  at::parallel_for(0, B, kSamplesPerTask, [&](int64_t begin, int64_t end) {
    std::vector<scalar> scratch(static_cast<size_t>(pair_scratch_size(problem)));
    kernel(problem, begin, end, scratch.data());
  });
}

class PairProducts : public torch::autograd::Function<PairProducts> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const std::optional<at::Tensor>& dense_BD,
                            const at::Tensor& embedded_BW, int64_t D) {
    const at::Tensor dense = dense_BD ? dense_BD->contiguous() : at::Tensor();
    const at::Tensor embedded = embedded_BW.contiguous();
    const int64_t B = embedded.size(0);
    at::Tensor out;
    AT_DISPATCH_FLOATING_TYPES(embedded.scalar_type(), "pair_products", [&] {
      auto problem = pairs_of<scalar_t>(dense, embedded, D);
      out = at::empty({B, problem.out_width()}, embedded.options());
      problem.out = out.mutable_data_ptr<scalar_t>();
      run_samples(problem, B, [](const auto&... arguments) { multiply_pairs(arguments...); });
    });
    ctx->save_for_backward({dense, embedded});
    ctx->saved_data["width"] = D;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &dense = saved[0], &embedded = saved[1];
    const at::Tensor grad_out = grads[0].contiguous();
    const at::Tensor grad_dense = dense.defined() ? at::empty_like(dense) : dense;
    const at::Tensor grad_embedded = at::empty_like(embedded);
    AT_DISPATCH_FLOATING_TYPES(embedded.scalar_type(), "pair_products_backward", [&] {
      auto problem = pairs_of<scalar_t>(dense, embedded, ctx->saved_data["width"].toInt());
      problem.grad_out = grad_out.const_data_ptr<scalar_t>();
      problem.grad_embedded = grad_embedded.mutable_data_ptr<scalar_t>();
      if (dense.defined()) problem.grad_dense = grad_dense.mutable_data_ptr<scalar_t>();
      run_samples(problem, embedded.size(0),
                  [](const auto&... arguments) { pair_gradients(arguments...); });
    });
    return {grad_dense, grad_embedded, at::Tensor()};
  }
};

// For any device and dtype.
at::Tensor composed(const at::Tensor& dense_BD, const at::Tensor& embedded_BW, int64_t D) {
  const at::Tensor all_BW = dense_BD.defined() ? at::cat({dense_BD, embedded_BW}, 1) : embedded_BW;
  const int64_t N = all_BW.size(1) / D;
  const at::Tensor x_BND = all_BW.view({all_BW.size(0), N, D});
  const at::Tensor products_BNN = at::bmm(x_BND, x_BND.transpose(1, 2));
  const at::Tensor pairs = at::tril_indices(N, N, -1, at::kLong).to(x_BND.device());
  const at::Tensor found = products_BNN.flatten(1).index_select(1, pairs[0] * N + pairs[1]);
  return dense_BD.defined() ? at::cat({dense_BD, found}, 1) : found;
}

}  // namespace

at::Tensor pair_products(const at::Tensor& dense_BD, const at::Tensor& embedded_BW, int64_t width) {
  TRIREME_ASSERT(width > 0 && embedded_BW.dim() == 2 && embedded_BW.size(1) % width == 0,
                 "vectors of ", width, " in ", embedded_BW.sizes());
  TRIREME_ASSERT(
      !dense_BD.defined() || (dense_BD.sizes() == at::IntArrayRef({embedded_BW.size(0), width}) &&
                              dense_BD.scalar_type() == embedded_BW.scalar_type()),
      "dense features ", dense_BD.sizes(), " beside ", embedded_BW.sizes());
  const at::ScalarType dtype = embedded_BW.scalar_type();
  if (embedded_BW.is_cpu() && embedded_BW.itemsize() == 2) {
    // The kernel reads fp32. libtorch's products of many small matrices take longer.
    const at::Tensor dense = dense_BD.defined() ? dense_BD.to(at::kFloat) : dense_BD;
    return pair_products(dense, embedded_BW.to(at::kFloat), width).to(dtype);
  }
  const bool is_kernels = embedded_BW.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble);
  if (!is_kernels) return composed(dense_BD, embedded_BW, width);
  // An argument of a Function is a defined tensor.
  const auto dense = dense_BD.defined() ? std::optional(dense_BD) : std::nullopt;
  return PairProducts::apply(dense, embedded_BW, width);
}

}  // namespace trireme::tasks
