// Section [optimizer] of a config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/numerics/batch_scaling.h"
#include "trireme/train/numerics/learning_rate.h"

namespace trireme::train {

// The names of the rules in optimizer.cc.
std::vector<std::string> optimizer_names();

struct OptimizerConfig {
  TRIREME_KEYS_BEGIN(OptimizerConfig)
  TRIREME_KEY(std::string, name, "adamw", kMustStay, "update rule", optimizer_names)
  TRIREME_KEY(double, learning_rate, 1e-3, kMayChange, "peak of the schedule", Range{0, kMaxRate})
  TRIREME_KEY(int64_t, warmup_steps, 20, kMayChange, "linear rise from 0", Range{0, kMaxSteps})
  TRIREME_KEY(RateSchedule, schedule, RateSchedule::kCosine, kMayChange, "after the warm-up",
              kRateSchedules)
  TRIREME_KEY(double, minimum_learning_rate, 0.0, kMayChange, "end of the schedule",
              Range{0, kMaxRate})
  TRIREME_KEY(double, decay_fraction, 0.2, kMayChange,
              "warmup-stable-decay: share of the steps that decay", Range{0, 1})
  TRIREME_KEY(double, weight_decay, 0.1, kMayChange, "of matrices; norms and biases have none",
              Range{0, kMaxRate})
  TRIREME_KEY(double, beta1, 0.9, kMayChange, "decay of the first moment", kDecay)
  TRIREME_KEY(double, beta2, 0.95, kMayChange, "decay of the second moment", kDecay)
  TRIREME_KEY(double, epsilon, 1e-8, kMayChange, "added to the denominator", Range{0, 1})
  TRIREME_KEY(double, momentum, 0.9, kMayChange, "sgd, muon, lars: decay of the momentum", kDecay)
  TRIREME_KEY(bool, nesterov, true, kMayChange, "sgd, muon: look one step of momentum ahead")
  TRIREME_KEY(std::string, groups, "", kMayChange,
              "decay and rate by name, such as \"*.bias: decay=0; lm_head.*: rate=0.5\"")
  TRIREME_KEY(std::string, adamw_parameters, "*embed*, *wte*, *wpe*, *lm_head*", kMustStay,
              "muon: names of the matrices that AdamW updates")
  TRIREME_KEY(BatchScaling, batch_scaling, BatchScaling::kNone, kMayChange,
              "multiply learning_rate by global_batch / base_batch, or by its root", kBatchScalings)
  TRIREME_KEY(int64_t, base_batch, 256, kMayChange,
              "the global_batch that learning_rate was tuned at", Range{1, kMaxBatch})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
