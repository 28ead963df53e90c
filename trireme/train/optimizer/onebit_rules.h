// The update rules of the 1-bit family. Which updates get the sum of gradients, and which the
// momentum that ranks have exchanged as signs, is in sign_schedule.h; the exchange is in
// parallel/data/compression/sign_hook.h. An element whose variance is 0, because it never had a
// gradient, does not move while signs are exchanged: a sign is never 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/train/optimizer/update_rules.h"

namespace trireme::train {

struct OneBitOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  int64_t freeze_step = 1000;  // the last update that is plain
};

// 1-bit Adam. Up to freeze_step AdamW bit for bit. Then `gradient` is the new momentum m, and with
// v the variance at freeze_step T
//   weights -= rate * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^T)) + epsilon) + decay * weights)
// States: exp_avg, exp_avg_sq, like the parameter.
// Source: Tang et al. 2021, arXiv:2102.02888, algorithm 1; with AdamW's corrections of the bias
class OneBitAdamRule : public UpdateRule {
 public:
  explicit OneBitAdamRule(const OneBitOptions& options)
      : options_(options), adamw_(options.beta1, options.beta2, options.epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  OneBitOptions options_;
  AdamWRule adamw_;
};

// 1-bit LAMB. Up to freeze_step LAMB, which also averages the ratio of each parameter's norms: c =
// 0.9 c + 0.1 ratio, its bias corrected in the end. Then, with m, v, T as above, u the Adam step
// without decay, and v' a variance that goes on with the gradients (m - beta1 m_before) / (1 -
// beta1):
//   r = max over elements of (sqrt(v) + epsilon) / (sqrt(v') + epsilon), biases corrected
//   with decay: r = r s + 1 - s, where s = min(1, |u| / |u + decay * weights|)
//   r is from 0.5 to 4 and from 0.9 to 1.1 of its last value, which is 1 at first
//   weights -= rate * c * r * (u + decay * weights)
// States: exp_avg, exp_avg_sq, fresh_sq, like the parameter; mean_ratio and last_factor, one number
// per parameter, and per expert of a stack.
// Source: Li et al. 2021, arXiv:2104.06069, algorithm 1; its scales per layer are not needed where
//         each block of signs has one
class OneBitLambRule : public UpdateRule {
 public:
  explicit OneBitLambRule(const OneBitOptions& options)
      : options_(options), lamb_(options.beta1, options.beta2, options.epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }

 private:
  void update_frozen(const UpdateItem& item, double rate, int64_t step) const;

  OneBitOptions options_;
  LambRule lamb_;
};

// 0/1 Adam without local steps. The gradients are sums in full in the updates in which the variance
// changes, less and less often (variance_update()), and signs in the others; the momentum takes all
// of them. AdamW bit for bit while the variance changes in every update.
// States: exp_avg, exp_avg_sq, like the parameter.
// Source: Lu et al. 2022, arXiv:2202.06009, section 4.1
class ZeroOneAdamRule : public UpdateRule {
 public:
  // variance_updates: those after which their interval doubles
  ZeroOneAdamRule(double beta1, double beta2, double epsilon, int64_t variance_updates)
      : beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon),
        variance_updates_(variance_updates),
        adamw_(beta1, beta2, epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double beta1_;
  double beta2_;
  double epsilon_;
  int64_t variance_updates_;
  AdamWRule adamw_;
};

}  // namespace trireme::train
