#include "trireme/parallel/expert/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

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

}  // namespace trireme::parallel
