// The mixture of experts of a model: keys of the [model] section. A sparse block has many
// feed-forwards, the experts, of which each token uses a few.
// Sources: routing.h and auxiliary_loss.h of trireme/parallel/expert
#pragma once

#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/parallel/expert/capacity.h"
#include "trireme/parallel/expert/routing.h"

namespace trireme::model {

using parallel::RouterScore;
inline constexpr Choice<RouterScore> kRouterScores[] = {{"softmax", RouterScore::kSoftmax},
                                                        {"sigmoid", RouterScore::kSigmoid}};

using parallel::DropBy;
inline constexpr Choice<DropBy> kDropsBy[] = {{"position", DropBy::kPosition},
                                              {"probability", DropBy::kProbability}};

enum class BalanceOver { kSequence, kBatch };
inline constexpr Choice<BalanceOver> kBalanceOver[] = {{"sequence", BalanceOver::kSequence},
                                                       {"batch", BalanceOver::kBatch}};

struct ModelConfig;

struct ExpertConfig {
  TRIREME_KEYS_BEGIN(ExpertConfig)
  TRIREME_KEY(int64_t, experts, 0, kMustStay,
              "E: experts of a sparse block; 0 = no block is sparse", Range{0, kMaxExperts})
  TRIREME_KEY(int64_t, experts_per_token, 2, kMustStay, "k: experts that each token uses",
              Range{1, kMaxExperts})
  TRIREME_KEY(int64_t, expert_width, 0, kMustStay,
              "width of an expert's feed-forward; 0 = ffn_width", Range{0, kMaxFfnWidth})
  TRIREME_KEY(int64_t, shared_experts, 0, kMustStay, "experts that every token uses besides",
              Range{0, kMaxExperts})
  TRIREME_KEY(int64_t, dense_layers, 0, kMustStay, "the first so many blocks stay dense",
              Range{0, kMaxLayers})
  TRIREME_KEY(int64_t, expert_interval, 1, kMustStay, "after them every so many-th block is sparse",
              Range{1, kMaxLayers})
  TRIREME_KEY(RouterScore, router_score, RouterScore::kSoftmax, kMustStay,
              "how a router scores experts", kRouterScores)
  TRIREME_KEY(bool, router_normalise, true, kMustStay,
              "a token's weights are divided by their sum; false: as Switch does")
  TRIREME_KEY(double, router_scale, 1.0, kMustStay, "factor of a token's weights",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(int64_t, expert_groups, 1, kMustStay, "equal groups in which the experts lie",
              Range{1, kMaxExperts})
  TRIREME_KEY(int64_t, groups_per_token, 1, kMustStay,
              "groups of which a token may use experts, with several groups", Range{1, kMaxExperts})
  TRIREME_KEY(double, balance_loss, 0.01, kMustStay,
              "factor of the loss that balances the use of the experts; 0 = none",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(BalanceOver, balance_over, BalanceOver::kSequence, kMustStay,
              "over what that loss balances: each sequence, or the whole batch, by the step before",
              kBalanceOver)
  TRIREME_KEY(double, router_bias_rate, 0.0, kMustStay,
              "step of the biases that balance the experts without a loss, such as 1e-3; 0 = none",
              Range{.minimum = 0, .maximum = 1})
  TRIREME_KEY(double, router_z_loss, 0.0, kMustStay,
              "factor of the loss that keeps a router's logits small, such as 1e-3; 0 = none",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(double, router_jitter, 0.0, kMustStay,
              "in training a router's input is multiplied by random factors from 1 - this to 1 + "
              "this, such as 0.01; 0 = none",
              Range{.minimum = 0, .maximum = 1})
  TRIREME_KEY(double, capacity_factor, 0.0, kMustStay,
              "in training an expert takes at most this times its even share of a sequence; "
              "0 = all that are sent",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(DropBy, drop_by, DropBy::kPosition, kMustStay,
              "which tokens an expert keeps then: the first, or those with the largest weights",
              kDropsBy)
  TRIREME_KEYS_END()

  bool is_sparse(int64_t layer) const {
    return experts > 0 && layer >= dense_layers && (layer + 1) % expert_interval == 0;
  }
  // How many blocks before this one are sparse.
  int64_t sparse_before(int64_t layer) const {
    int64_t count = 0;
    for (int64_t i = 0; i < layer; ++i) count += is_sparse(i) ? 1 : 0;
    return count;
  }
  parallel::RouterOptions router() const {
    return {.experts_per_token = experts_per_token,
            .score = router_score,
            .normalise = router_normalise,
            .scale = router_scale,
            .groups = expert_groups,
            .groups_per_token = groups_per_token};
  }
};

// Throws: ConfigError with the key, the value found and the value expected
void check_experts(const ModelConfig& config);

}  // namespace trireme::model
