// Examines one step of a run operator by operator: where the first NaN, infinity or spike is made.
// `trireme replay` reads what it writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/operator_watch.h"

namespace trireme::train {

struct StepExaminationConfig {
  TRIREME_KEYS_BEGIN(StepExaminationConfig)
  TRIREME_KEY(int64_t, step, 0, kMayChange,
              "look at the result of every libtorch operator of this step, and keep the first NaN, "
              "infinity or spike with its inputs in output.folder/examined; the run ends after the "
              "step; 0 = none",
              Range{0, kMaxSteps})
  TRIREME_KEY(double, spike, 0, kMayChange,
              "with examine.step: how many times the largest value that the same operator had one "
              "step before counts as a spike; 0 = no spikes",
              Range{0, 1e30})
  TRIREME_KEYS_END()
};

inline constexpr const char* kExaminedFolder = "examined";
// "rank-3.json", and "rank-3.safetensors" with the operator's inputs.
std::filesystem::path examined_file(const std::filesystem::path& run, int rank);
std::filesystem::path examined_inputs(const std::filesystem::path& run, int rank);

// Every rank writes its file between the step's backward and its update, even if the step then
// fails, and again at the end of the step. Off, it costs nothing.
class StepExamination final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override;
  void add_keys(Keys& keys) override { keys.add("examine", config_); }
  bool is_on() const override { return config_.step > 0 || config_.spike > 0; }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  void on_start(RunView& run) override;
  // Between the step's backward and its update: what was found so far is written.
  bool wants_gradients(int64_t step) const override { return step == config_.step; }
  void on_gradients(RunView& run) override { write(run); }
  void on_step(RunView& run) override;

 private:
  void prepare(RunView& run);
  void write(RunView& run) const;

  StepExaminationConfig config_;
  std::unique_ptr<OperatorWatch> watch_;  // during the step, and the one before it
};

}  // namespace trireme::train
