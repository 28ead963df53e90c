// Keeps the gradients of a run's first steps, whole and by the parameters' names at every layout,
// for `trireme verify` and for people who look at them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

struct GradientRecordConfig {
  TRIREME_KEYS_BEGIN(GradientRecordConfig)
  TRIREME_KEY(int64_t, gradients, 0, kMayChange,
              "keep the gradients of the first N steps in output.folder/gradients, in the form of "
              "checkpoints: summed over ranks, before clipping; 0 = none",
              Range{0, kMaxSteps})
  TRIREME_KEY(bool, end, false, kMayChange,
              "end the run after these steps, with the learning rates of the whole one")
  TRIREME_KEYS_END()
};

inline constexpr const char* kGradientFolder = "gradients";
// In a run with learners the records of learner k lie in the folder learners/k of the run.
inline constexpr const char* kLearnersFolder = "learners";
std::filesystem::path folder_of_learner(const std::filesystem::path& run, int64_t learner);
// Where the records lie of the run that has this folder, or of a learner of it.
std::filesystem::path record_folder(const std::filesystem::path& run, std::optional<int> learner);
// In the state of such a record: the names of all parameters, in the model's order.
inline constexpr const char* kRecordedParameters = "parameters";
// Also there in a run with learners: the numbers of this learner's step, null if not finite.
inline constexpr const char* kRecordedNumbers = "numbers";
// Also there, if ranks that hold the same part of a gradient have other bits: its name, as in the
// records of activations. It is the first of such gradients.
inline constexpr const char* kDifferingGradients = "replicas_differ";

// A record of step s is the folder gradients/step-00000s with a tensor for each parameter that is
// trained, under its name. Without the embedding tables of recommendation, whose gradients are of
// rows. Of replicas that differ between ranks one is kept.
// Comm:   names, boxes and digests, in a step that is recorded
// Memory: with a loss scale this rank's gradients once more
class GradientRecord final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override {
    return std::make_unique<GradientRecord>(*this);
  }
  void add_keys(Keys& keys) override { keys.add("record", config_); }
  bool is_on() const override { return config_.gradients > 0 || config_.end; }
  bool works_in_learners() const override { return true; }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  bool wants_gradients(int64_t step) const override { return step <= config_.gradients; }
  void on_gradients(RunView& run) override;
  void on_step(RunView& run) override;

 private:
  GradientRecordConfig config_;
};

}  // namespace trireme::train
