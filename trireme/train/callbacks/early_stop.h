// Ends a run whose metric no longer improves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/watched_metric.h"

namespace trireme::train::inline internal {

struct EarlyStopConfig {
  TRIREME_KEYS_BEGIN(EarlyStopConfig)
  TRIREME_KEY(int64_t, patience, 0, kMayChange,
              "end after this many evaluations without improvement; 0 = never", Range{0, kMaxSteps})
  TRIREME_KEY(std::string, metric, "validation_loss", kMayChange, "what must improve")
  TRIREME_KEY(Goal, goal, Goal::kSmallest, kMayChange, "which value of it is best", kGoals)
  TRIREME_KEY(double, minimum_change, 0, kMayChange, "a smaller improvement does not count",
              Range{0, 1e30})
  TRIREME_KEYS_END()
};

// Keeps the best value and the evaluations since in the checkpoint.
class EarlyStop final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override { return std::make_unique<EarlyStop>(*this); }
  void add_keys(Keys& keys) override { keys.add("early_stop", config_); }
  bool is_on() const override { return config_.patience > 0; }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  void on_start(RunView& run) override { stop_if_due(run); }
  void on_evaluate(RunView& run) override;
  std::string state() const override;
  void restore(const std::string& state) override;

 private:
  void stop_if_due(RunView& run) const;

  EarlyStopConfig config_;
  BestValue best_;
  int64_t num_worse_ = 0;  // evaluations since the best
};

}  // namespace trireme::train::inline internal
