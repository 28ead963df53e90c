// The mixture of experts of a model: keys of the [model] section. A sparse block has many
// feed-forwards, the experts. Each token uses a few of them.
// Sources: trireme/parallel/expert/routing.h
#pragma once

#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
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
              "E: experts per sparse block; 0 = dense model, without experts",
              Range{0, kMaxExperts})
  TRIREME_KEY(int64_t, experts_per_token, 2, kMustStay,
              "k: number of experts that process each token", Range{1, kMaxExperts})
  TRIREME_KEY(int64_t, expert_width, 0, kMustStay,
              "hidden width of each expert's feed-forward; 0 = ffn_width", Range{0, kMaxFfnWidth})
  TRIREME_KEY(int64_t, shared_experts, 0, kMustStay,
              "number of additional experts that process every token", Range{0, kMaxExperts})
  TRIREME_KEY(
      bool, shared_gate, false, kMustStay,
      "multiply the shared experts' result by the sigmoid of a learned logit of each token, "
      "as in Qwen2-MoE")
  TRIREME_KEY(int64_t, dense_layers, 0, kMustStay, "number of leading blocks that stay dense",
              Range{0, kMaxLayers})
  TRIREME_KEY(
      int64_t, expert_interval, 1, kMustStay,
      "make every Nth block sparse, counted from the model's first; the dense_layers stay dense",
      Range{1, kMaxLayers})
  TRIREME_KEY(RouterScore, router_score, RouterScore::kSoftmax, kMustStay,
              "function that turns router logits into scores", kRouterScores)
  TRIREME_KEY(bool, router_normalise, true, kMustStay,
              "divide a token's expert weights by their sum; false = use the scores as they are, "
              "as in Switch")
  TRIREME_KEY(double, router_scale, 1.0, kMustStay, "factor applied to a token's expert weights",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(int64_t, expert_groups, 1, kMustStay,
              "number of equal groups that the experts are divided into", Range{1, kMaxExperts})
  TRIREME_KEY(int64_t, groups_per_token, 1, kMustStay,
              "number of groups from which a token may choose its experts, out of expert_groups",
              Range{1, kMaxExperts})
  TRIREME_KEY(double, balance_loss, 0.01, kMustStay,
              "weight of the auxiliary loss that balances the load of the experts; 0 = none",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(BalanceOver, balance_over, BalanceOver::kSequence, kMustStay,
              "tokens that balance_loss balances; sequence = each sequence by itself, batch = the "
              "whole step, with token counts of the previous step",
              kBalanceOver)
  TRIREME_KEY(double, router_bias_rate, 0.0, kMustStay,
              "step size of the bias update that balances the experts without a loss, such as "
              "1e-3; 0 = no update",
              Range{.minimum = 0, .maximum = 1})
  TRIREME_KEY(
      bool, router_bias, false, kMustStay,
      "give routers a balancing bias even with router_bias_rate = 0; it then stays constant")
  TRIREME_KEY(double, router_z_loss, 0.0, kMustStay,
              "weight of the loss that keeps router logits small, such as 1e-3; 0 = none",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(double, router_jitter, 0.0, kMustStay,
              "training: multiply router inputs by random factors from 1 - jitter to 1 + jitter, "
              "such as 0.01; 0 = none",
              Range{.minimum = 0, .maximum = 1})
  TRIREME_KEY(double, capacity_factor, 0.0, kMustStay,
              "training: limit on the tokens that an expert takes of each sequence, as a multiple "
              "of its even share; 0 = no limit",
              Range{.minimum = 0, .maximum = 1e6})
  TRIREME_KEY(DropBy, drop_by, DropBy::kPosition, kMustStay,
              "tokens that an expert at its capacity keeps; position = the first of the sequence, "
              "probability = those with the largest weights",
              kDropsBy)
  TRIREME_KEY(bool, expert_bias, false, kMustStay,
              "add learned biases to the router's logits and to the three projections of each "
              "expert, as in GPT-OSS")
  TRIREME_KEY(double, swiglu_limit, 0.0, kMustStay,
              "experts compute a clamped SwiGLU, (up + 1) gate sigmoid(a gate), with gates of at "
              "most this and ups of at most this size, as in GPT-OSS; 0 = SwiGLU",
              Range{0, 1e6})
  TRIREME_KEY(double, swiglu_alpha, 1.702, kMustStay, "a of the clamped SwiGLU, see swiglu_limit",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEYS_END()

  bool has_router_bias() const { return router_bias || router_bias_rate > 0; }
  bool is_sparse(int64_t layer) const {
    return experts > 0 && layer >= dense_layers && (layer + 1) % expert_interval == 0;
  }
  // Number of sparse blocks before this one.
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
