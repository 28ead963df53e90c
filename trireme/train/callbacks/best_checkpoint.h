// Keeps the checkpoint with the best value of a metric, beside the newest ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/watched_metric.h"

namespace trireme::train::inline internal {

struct BestCheckpointConfig {
  TRIREME_KEYS_BEGIN(BestCheckpointConfig)
  TRIREME_KEY(std::string, best, "", kMayChange,
              "keep the checkpoint with the best value of this metric in output.folder/best, such "
              "as validation_loss; \"\" = none")
  TRIREME_KEY(Goal, best_goal, Goal::kSmallest, kMayChange, "which value of it is best", kGoals)
  TRIREME_KEYS_END()
};

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

}  // namespace trireme::train::inline internal
