// Callbacks that compare a metric from one evaluation to the next: one keeps the best checkpoint,
// one ends a run whose metric no longer improves.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

enum class Goal { kSmallest, kLargest };
inline constexpr Choice<Goal> kGoals[] = {{"smallest", Goal::kSmallest},
                                          {"largest", Goal::kLargest}};

// The best value so far.
class BestValue {
 public:
  // Whether `value` is better than the best by more than `change`; then it becomes the best. A NaN
  // never is.
  bool improve(double value, Goal goal, double change = 0) {
    if (std::isnan(value)) return false;
    const double gain = goal == Goal::kSmallest ? best_ - value : value - best_;
    if (is_set() && !(gain > change)) return false;
    best_ = value;
    return true;
  }
  bool is_set() const { return !std::isnan(best_); }
  double value() const { return best_; }  // NaN before the first
  void restore(double value) { best_ = value; }

 private:
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

// Throws: ConfigError when evaluations have no metric of that name, with the nearest one; `key` is
//         the config key that names it
void check_watched(std::string_view key, const std::string& metric,
                   std::span<const std::string> metrics);

struct BestCheckpointConfig {
  TRIREME_KEYS_BEGIN(BestCheckpointConfig)
  TRIREME_KEY(std::string, best, "", kMayChange,
              "keep the checkpoint with the best value of this metric in output.folder/best, such "
              "as validation_loss; empty = off")
  TRIREME_KEY(Goal, best_goal, Goal::kSmallest, kMayChange, "which value of the metric is best",
              kGoals)
  TRIREME_KEYS_END()
};

// Keeps the checkpoint with the best value of a metric, beside the newest ones.
// The files are hard links where the file system has them, so the best checkpoint takes no room
// while it is also one of the newest. Replaced at once: a kill leaves one best checkpoint, or the
// next start makes it again.
class BestCheckpoint final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override {
    return std::make_unique<BestCheckpoint>(*this);
  }
  void add_keys(Keys& keys) override { keys.add("checkpoint", config_); }
  bool is_on() const override { return !config_.best.empty(); }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  void on_start(RunView& run) override;
  void on_evaluate(RunView& run) override;
  void on_checkpoint(RunView& run, const std::filesystem::path& checkpoint) override;
  std::string state() const override;
  void restore(const std::string& state) override;

 private:
  BestCheckpointConfig config_;
  BestValue best_;
  int64_t best_step_ = 0;  // 0: none yet
};

struct EarlyStopConfig {
  TRIREME_KEYS_BEGIN(EarlyStopConfig)
  TRIREME_KEY(int64_t, patience, 0, kMayChange,
              "end the run after N evaluations in a row without improvement; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(std::string, metric, "validation_loss", kMayChange, "metric that must improve")
  TRIREME_KEY(Goal, goal, Goal::kSmallest, kMayChange, "which value of the metric is best", kGoals)
  TRIREME_KEY(double, minimum_change, 0, kMayChange,
              "change that the metric must exceed to count as an improvement", Range{0, 1e30})
  TRIREME_KEYS_END()
};

// Ends a run whose metric no longer improves. Keeps the best value and the evaluations since in the
// checkpoint.
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

}  // namespace trireme::train
