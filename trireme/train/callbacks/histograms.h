// Histograms of every parameter's weights and gradients, for TensorBoard.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/metrics/histogram.h"

namespace trireme::train {

struct HistogramsConfig {
  TRIREME_KEYS_BEGIN(HistogramsConfig)
  TRIREME_KEY(
      int64_t, interval, 0, kMayChange,
      "write histograms of every parameter to output.folder/tensorboard every N steps; 0 = never",
      Range{0, kMaxSteps})
  TRIREME_KEY(bool, weights, true, kMayChange, "include the weights, after the step")
  TRIREME_KEY(bool, gradients, true, kMayChange,
              "include the gradients, summed over ranks, before clipping")
  TRIREME_KEYS_END()
};

// Histograms cover whole parameters, as "weights/<name>" and "gradients/<name>": an element counts
// once, however ranks share it. A tensor with NaN or infinite values also gets the scalar
// "<tag>/nonfinite", the number of them.
// Comm:   in a step with histograms, for each parameter 12.4 kB (twice with gradients), to rank 0
// Memory: as much
class Histograms final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override { return std::make_unique<Histograms>(*this); }
  void add_keys(Keys& keys) override { keys.add("histogram", config_); }
  bool is_on() const override { return config_.interval > 0; }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  bool wants_gradients(int64_t step) const override { return config_.gradients && is_due(step); }
  void on_gradients(RunView& run) override;
  void on_step(RunView& run) override;

 private:
  bool is_due(int64_t step) const { return step % config_.interval == 0; }

  HistogramsConfig config_;
  std::vector<Histogram> gradients_;  // of the step under way, this rank's part
};

}  // namespace trireme::train
