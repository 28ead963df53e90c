// An exponential moving average of the weights, which is often better than the last weights. It is
// sharded like them, saved with the checkpoint, and evaluated beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

struct WeightAverageConfig {
  TRIREME_KEYS_BEGIN(WeightAverageConfig)
  TRIREME_KEY(
      double, decay, 0, kMayChange,
      "decay of an exponential moving average of the weights, such as 0.999; 0 = no average",
      kDecay)
  TRIREME_KEY(int64_t, start, 0, kMayChange, "number of steps before averaging begins",
              Range{0, kMaxSteps})
  TRIREME_KEYS_END()
};

// After each step, average += (1 - decay_n) (weights - average), with decay_n = min(decay,
// (1 + n) / (10 + n)) after n steps, so that the first weights are forgotten soon. Skipped steps do
// not count. In fp32 for weights in bf16 and fp16.
// An evaluation's line gets "average_validation_loss".
// Comm:   none, except that an evaluation brings the average to the ranks and the weights back
// Memory: the bytes of this rank's shards, in fp32 at least
// Source: Polyak and Juditsky 1992; the growing decay is TensorFlow's ExponentialMovingAverage
class WeightAverage final : public Callback {
 public:
  static constexpr std::string_view kName = "average";  // also of its section
  // How many steps a saved state() has averaged.
  // Throws: CheckpointError
  static int64_t steps_in(const std::string& state);

  // The averages are not copied.
  std::unique_ptr<Callback> clone() const override;
  void add_keys(Keys& keys) override { keys.add(kName, config_); }
  bool is_on() const override { return config_.decay > 0; }
  std::vector<std::string> metric_names() const override { return {"average_validation_loss"}; }
  void on_step(RunView& run) override;
  void on_evaluate(RunView& run) override;
  void build(const std::vector<parallel::Shard>& shards) override;
  std::vector<checkpoint::Entry> entries() const override { return averages_; }
  std::string state() const override;
  void restore(const std::string& state) override;

 private:
  WeightAverageConfig config_;
  std::vector<checkpoint::Entry> averages_;  // of each shard
  int64_t num_steps_ = 0;                    // averaged
};

}  // namespace trireme::train
