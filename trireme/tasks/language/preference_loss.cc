#include "trireme/tasks/language/preference_loss.h"

#include <ATen/ATen.h>

namespace trireme::tasks {

PreferenceLoss preference_loss(const at::Tensor& losses_P2, const at::Tensor& reference_P2,
                               const PreferenceOptions& options) {
  const auto& [beta, smoothing] = options;
  const at::Tensor rewards_P2 = (losses_P2 + reference_P2).mul_(-beta);
  const at::Tensor margin_P = rewards_P2.select(1, 0) - rewards_P2.select(1, 1);
  // -log sigmoid(s) is softplus(-s); torch's own softplus is linear from 20 on, which loses bits.
  const auto softplus = [](const at::Tensor& x) {
    return x.clamp_min(0) + x.abs().neg_().exp_().log1p_();
  };
  const at::Tensor loss_P =
      softplus(-margin_P).mul_(1 - smoothing) + softplus(margin_P).mul_(smoothing);
  // d loss / d s, times d s / d cross-entropy: -beta for the chosen answer, beta for the other.
  const at::Tensor slope_P =
      at::sigmoid(margin_P).mul_(smoothing) - at::sigmoid(-margin_P).mul_(1 - smoothing);
  const at::Tensor pairs = at::full({}, losses_P2.size(0), loss_P.options());
  return {.sum = loss_P.sum(),
          .slopes_P2 = at::stack({slope_P * -beta, slope_P * beta}, 1),
          .metrics =
              at::stack({rewards_P2.select(1, 0).sum(), pairs, rewards_P2.select(1, 1).sum(), pairs,
                         margin_P.sum(), pairs, margin_P.gt(0).sum().to(at::kDouble), pairs})};
}

std::vector<train::Metric> preference_metrics() {
  return {{.name = "reward_chosen"},
          {.name = "reward_rejected"},
          {.name = "reward_margin"},
          {.name = "reward_accuracy"}};
}

}  // namespace trireme::tasks
