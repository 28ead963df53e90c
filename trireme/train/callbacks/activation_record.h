// Keeps the probes of a run's first steps (mesh/probe.h): activations at the boundaries of the
// model's units and their gradients, whole and by name at every layout. Lets routers repeat the
// choices of another run, and perturbs what is probed, for `trireme verify`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/probe_file.h"

namespace trireme::train {

struct ActivationRecordConfig {
  TRIREME_KEYS_BEGIN(ActivationRecordConfig)
  TRIREME_KEY(int64_t, activations, 0, kMayChange,
              "keep the activations at the boundaries of the model's units, and their gradients, "
              "of the first N steps in output.folder/activations, in the form of checkpoints; "
              "0 = none",
              Range{0, kMaxSteps})
  TRIREME_KEY(std::string, choices, "", kMayChange,
              "in these steps routers choose the experts that they chose in the run with this "
              "folder, which has them recorded; \"\" = their own")
  TRIREME_KEY(int64_t, perturb, 0, kMayChange,
              "in these steps each such activation is off by one roundoff, up or down by this "
              "seed; 0 = none",
              Range{0, 1'000'000'000})
  TRIREME_KEYS_END()
};

inline constexpr const char* kActivationFolder = "activations";
// In the state of such a record: the names of activations in the order of forward; probes of which
// some ranks have other bits than the first that holds the same part, with these ranks and the
// largest difference, absolute and relative; and those that no ranks have whole.
inline constexpr const char* kRecordedProbes = "probes";
inline constexpr const char* kDifferingProbes = "replicas_differ";
inline constexpr const char* kPartialProbes = "left_out";

// A record of step s is the folder activations/step-00000s with a tensor for each probe, over all
// samples of the step: [samples, ...], or [tokens, ...]. Those of gradients are "NAME@gradient",
// those of routers' choices "NAME@choices".
// Comm:   names, boxes and digests, in a step that is recorded
// Memory: a probe's block of one microbatch while the step runs; when it is saved 4 MiB, or two
//         rows that are longer
// Disk:   during the step the blocks, in files of each rank in output.folder
class ActivationRecord final : public Callback, public verify::ProbeSink {
 public:
  std::unique_ptr<Callback> clone() const override;
  void add_keys(Keys& keys) override { keys.add("record", config_); }
  bool is_on() const override {
    return config_.activations > 0 || !config_.choices.empty() || config_.perturb != 0;
  }
  bool works_in_learners() const override { return true; }
  void check(const RunConfig& config, std::span<const std::string> metrics) const override;
  void on_start(RunView& run) override;
  verify::ProbeSink* probes(int64_t step) override;
  bool wants_gradients(int64_t step) const override { return step <= config_.activations; }
  void on_gradients(RunView& run) override;

  void put(const verify::ProbedBlock& block) override { file_->put(block); }
  at::Tensor replayed(const verify::ProbedBlock& block) override;
  std::optional<uint64_t> perturbation() const override;

 private:
  ActivationRecordConfig config_;
  std::filesystem::path folder_;
  std::filesystem::path chosen_folder_;  // with config_.choices
  int rank_ = 0;
  int64_t step_ = 0;
  uint64_t file_copies_ = 1;                                // of a probe, in the files of all ranks
  std::unique_ptr<ProbeFile> file_;                         // of step_
  std::unique_ptr<const checkpoint::TensorSource> chosen_;  // of step_; null: not opened
};

}  // namespace trireme::train
