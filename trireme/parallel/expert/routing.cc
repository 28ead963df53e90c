#include "trireme/parallel/expert/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kRowsPerTask = 256;

// k passes over the row; k is small.
template <typename scalar>
void choose(const scalar* row, int64_t num, int64_t k, int64_t* chosen) {
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < num; ++e) {
      const bool is_larger =
          // NaN counts as the largest, as in torch.topk.
          best < 0 || row[e] > row[best] || (std::isnan(row[e]) && !std::isnan(row[best]));
      if (is_larger && std::find(chosen, chosen + j, e) == chosen + j) best = e;
    }
    chosen[j] = best;
  }
}

// choice, with -infinity for the experts of the groups that a token does not use.
at::Tensor in_best_groups(const at::Tensor& choice_SE, const RouterOptions& options) {
  const int64_t G = options.groups, S = choice_SE.size(0), in_group = choice_SE.size(1) / G;
  const at::Tensor choice_SGe = choice_SE.view({S, G, in_group});
  const at::Tensor best_two = std::get<0>(choice_SGe.topk(std::min<int64_t>(2, in_group), -1));
  const at::Tensor groups_Sg = largest_indices(best_two.sum(-1), options.groups_per_token);
  const at::Tensor is_used_SG =
      at::zeros({S, G}, choice_SE.options().dtype(at::kBool)).scatter_(1, groups_Sg, true);
  return choice_SGe
      .masked_fill(is_used_SG.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view_as(choice_SE);
}

}  // namespace

at::Tensor largest_indices(const at::Tensor& x_SE, int64_t k) {
  const int64_t S = x_SE.size(0), E = x_SE.size(1);
  TRIREME_ASSERT(k >= 1 && k <= E, k, " largest of ", E);
  // topk on a device does not say which of equal values it takes. A stable sort does.
  if (!x_SE.is_cpu()) {
    return std::get<1>(at::sort(x_SE, /*stable=*/true, /*dim=*/1, /*descending=*/true))
        .narrow(1, 0, k)
        .contiguous();
  }
  const at::Tensor rows = x_SE.contiguous();
  const at::Tensor chosen_SK = at::empty({S, k}, at::kLong);
  auto* const chosen = chosen_SK.mutable_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "largest_indices", [&] {
    const auto* const data = rows.const_data_ptr<scalar_t>();
    at::parallel_for(0, S, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) choose(data + s * E, E, k, chosen + s * k);
    });
  });
  return chosen_SK;
}

namespace {

// libtorch's own rounds the last elements of a tensor, too few for a vector, otherwise than the
// rest, so that a token's scores would depend on the number of tokens. Its exp() does not. The
// bound keeps exp() finite, and with it the gradient.
at::Tensor sigmoid_of(const at::Tensor& logits) {
  const double lowest = logits.scalar_type() == at::kDouble ? -700 : -80;
  return (1 + (-logits.clamp_min(lowest)).exp()).reciprocal();
}

}  // namespace

Routing route(const at::Tensor& logits_SE, const at::Tensor& bias_E, const RouterOptions& options,
              const at::Tensor& chosen_SK) {
  Routing routing;
  routing.scores_SE =
      options.score == RouterScore::kSoftmax ? logits_SE.softmax(-1) : sigmoid_of(logits_SE);
  routing.experts_SK = chosen_SK;
  if (!chosen_SK.defined()) {
    // The bias decides who is chosen and has no part in the weights, so it needs no gradient.
    at::Tensor choice_SE = routing.scores_SE.detach();
    if (bias_E.defined()) choice_SE = choice_SE + bias_E;
    if (options.groups_per_token < options.groups) choice_SE = in_best_groups(choice_SE, options);
    routing.experts_SK = largest_indices(choice_SE, options.experts_per_token);
  }
  at::Tensor weights_SK = routing.scores_SE.gather(1, routing.experts_SK);
  if (options.normalise) {
    // All sigmoids may be zero.
    constexpr double kTiny = 1e-20;
    weights_SK = weights_SK / (weights_SK.sum(1, /*keepdim=*/true) + kTiny);
  }
  routing.weights_SK = options.scale == 1 ? weights_SK : weights_SK * options.scale;
  return routing;
}

namespace {

// The places of each expert's assignments in one sequence, by position.
using Places = std::vector<std::vector<int64_t>>;

void drop_last(std::span<int64_t> experts, const Places& places, int64_t capacity) {
  for (const std::vector<int64_t>& of_expert : places) {
    for (size_t i = static_cast<size_t>(capacity); i < of_expert.size(); ++i) {
      experts[static_cast<size_t>(of_expert[i])] = -1;
    }
  }
}

}  // namespace

int64_t expert_capacity(double factor, int64_t T, int64_t experts_per_token, int64_t num_experts) {
  return static_cast<int64_t>(std::ceil(factor * static_cast<double>(T * experts_per_token) /
                                        static_cast<double>(num_experts)));
}

at::Tensor drop_over_capacity(const at::Tensor& experts_BTK, const at::Tensor& weights_BTK,
                              int64_t num_experts, int64_t capacity, DropBy by) {
  TRIREME_ASSERT(capacity > 0, "experts with room for ", capacity, " tokens");
  const at::Tensor kept =
      experts_BTK.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  const int64_t in_sequence = kept.size(1) * kept.size(2);
  const at::Tensor weights = by == DropBy::kProbability
                                 ? weights_BTK.detach().to(at::kCPU, at::kDouble).contiguous()
                                 : at::Tensor();
  for (int64_t b = 0; b < kept.size(0); ++b) {
    const std::span<int64_t> experts(kept.mutable_data_ptr<int64_t>() + b * in_sequence,
                                     static_cast<size_t>(in_sequence));
    Places places(static_cast<size_t>(num_experts));
    for (int64_t i = 0; i < in_sequence; ++i) {
      places[static_cast<size_t>(experts[static_cast<size_t>(i)])].push_back(i);
    }
    if (weights.defined()) {
      const double* const weight = weights.const_data_ptr<double>() + b * in_sequence;
      for (std::vector<int64_t>& of_expert : places) {
        // Stable: equal weights are dropped by position, on every device.
        std::ranges::stable_sort(of_expert, std::ranges::greater(),
                                 [weight](int64_t i) { return weight[i]; });
      }
    }
    drop_last(experts, places, capacity);
  }
  return kept.to(experts_BTK.device());
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class WithLossFunction : public torch::autograd::Function<WithLossFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& loss,
                            double scale) {
    // The loss is added to backward only, so the model's output has no other value.
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
  // A sum of zeros would make NaN.
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
