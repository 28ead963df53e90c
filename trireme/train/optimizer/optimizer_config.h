// Section [optimizer] of a config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/train/numerics/learning_rate.h"

namespace trireme::train {

// How states are kept between updates (state_format.h).
enum class StateDtype { kFp32, kBf16, kInt8 };
inline constexpr Choice<StateDtype> kStateDtypes[] = {
    {"fp32", StateDtype::kFp32}, {"bf16", StateDtype::kBf16}, {"int8", StateDtype::kInt8}};

// The names of the rules in optimizer.cc.
std::vector<std::string> optimizer_names();

struct OptimizerConfig {
  TRIREME_KEYS_BEGIN(OptimizerConfig)
  TRIREME_KEY(std::string, name, "adamw", kMustStay, "update rule", optimizer_names)
  TRIREME_KEY(double, learning_rate, 1e-3, kMayChange, "peak learning rate", Range{0, kMaxRate})
  TRIREME_KEY(int64_t, warmup_steps, 20, kMayChange,
              "steps of linear warm-up from 0 to the peak learning rate", Range{0, kMaxSteps})
  TRIREME_KEY(RateSchedule, schedule, RateSchedule::kCosine, kMayChange,
              "learning-rate schedule after the warm-up", kRateSchedules)
  TRIREME_KEY(double, minimum_learning_rate, 0.0, kMayChange,
              "learning rate at the end of the schedule; at most learning_rate", Range{0, kMaxRate})
  TRIREME_KEY(double, decay_fraction, 0.2, kMayChange,
              "warmup-stable-decay: fraction of all steps in the final decay", Range{0, 1})
  TRIREME_KEY(double, weight_decay, 0.1, kMayChange,
              "weight decay of matrices; norms and biases have none unless groups sets it",
              Range{0, kMaxRate})
  TRIREME_KEY(double, beta1, 0.9, kMayChange, "decay rate of the first moment", kDecay)
  TRIREME_KEY(double, beta2, 0.95, kMayChange, "decay rate of the second moment", kDecay)
  TRIREME_KEY(double, epsilon, 1e-8, kMayChange, "epsilon added to the denominator of the update",
              kEpsilon)
  TRIREME_KEY(double, momentum, 0.9, kMayChange, "sgd, muon, lars: momentum coefficient", kDecay)
  TRIREME_KEY(bool, nesterov, true, kMayChange, "sgd, muon: use Nesterov momentum")
  TRIREME_KEY(std::string, groups, "", kMayChange,
              "weight decay and learning-rate factor by parameter-name pattern, such as \"*.bias: "
              "decay=0; lm_head.*: rate=0.5\"")
  TRIREME_KEY(std::string, adamw_parameters, "*embed*, *wte*, *wpe*, *lm_head*", kMustStay,
              "muon: comma-separated name patterns of matrices that AdamW updates instead")
  TRIREME_KEY(
      int64_t, freeze_step, 1000, kMustStay,
      "onebit-adam, onebit-lamb: last step that sums gradients in full; later ones keep the "
      "variance and exchange signs of the momentum",
      Range{1, kMaxSteps})
  TRIREME_KEY(int64_t, variance_updates, 16, kMayChange,
              "zero-one-adam: updates of the variance before their interval doubles; other steps "
              "exchange signs of gradients",
              Range{1, kMaxSteps})
  TRIREME_KEY(StateDtype, state_dtype, StateDtype::kFp32, kMustStay,
              "number format of the optimizer's states, such as moments and momentum, between "
              "updates; bf16 is rounded stochastically, int8 has a scale per 64 elements of a row",
              kStateDtypes)
  TRIREME_KEY(BatchScaling, batch_scaling, BatchScaling::kNone, kMayChange,
              "scaling of learning_rate with the batch, by r = global_batch / base_batch; linear = "
              "r, square-root = sqrt(r)",
              kBatchScalings)
  TRIREME_KEY(int64_t, base_batch, 256, kMayChange,
              "global_batch for which learning_rate was tuned, used by batch_scaling",
              Range{1, kMaxBatch})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
