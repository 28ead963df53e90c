#include "trireme/parallel/expert/auxiliary_loss.h"

#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class WithLossFunction : public torch::autograd::Function<WithLossFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& loss,
                            double scale) {
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["dtype"] = static_cast<int64_t>(loss.scalar_type());
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    const at::Tensor grad_loss =
        at::full({}, ctx->saved_data["scale"].toDouble(), grads[0].options().dtype(dtype));
    return {grads[0], grad_loss, at::Tensor()};
  }
};

}  // namespace

at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss, double scale) {
  TRIREME_ASSERT(loss.dim() == 0, "a loss of shape ", loss.sizes());
  return WithLossFunction::apply(x, loss, scale);
}

at::Tensor shares_of(const at::Tensor& scores) {
  constexpr double kTiny = std::numeric_limits<float>::min();  // all sigmoids may be zero
  return scores / scores.sum(-1, /*keepdim=*/true).clamp_min(kTiny);
}

at::Tensor balance_loss(const at::Tensor& scores_BtE, const at::Tensor& tokens_BE, int64_t T,
                        int64_t experts_per_token) {
  const at::Tensor shares_BtE = shares_of(scores_BtE);
  const double factor = static_cast<double>(scores_BtE.size(2)) /
                        static_cast<double>(experts_per_token * T) / static_cast<double>(T);
  return (tokens_BE * shares_BtE.sum(1)).sum() * factor;
}

at::Tensor router_z_loss(const at::Tensor& logits_SE) {
  return logits_SE.logsumexp(-1).square().sum();
}

at::Tensor tokens_of_experts(const at::Tensor& experts_SK, int64_t num_sequences,
                             int64_t num_experts, at::ScalarType dtype) {
  at::Tensor counts_BE = at::zeros({num_sequences, num_experts}, experts_SK.options().dtype(dtype));
  if (experts_SK.numel() == 0) return counts_BE;
  const at::Tensor of_sequence = experts_SK.view({num_sequences, -1});
  return counts_BE.scatter_add_(1, of_sequence,
                                at::ones_like(of_sequence, at::TensorOptions().dtype(dtype)));
}

}  // namespace trireme::parallel
