// A run that was made to be compared: activations, gradients, weights, optimizer states, loss and
// norm of its first steps, as record.activations, record.gradients, checkpoints and metrics.jsonl
// have them. Reads files only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::verify {

// The numbers of each step's line in metrics.jsonl, by name. Null and missing ones are left out.
using StepNumbers = std::map<int64_t, std::map<std::string, double>>;
// Throws: Error when the folder of the run has no metrics
StepNumbers read_step_numbers(const std::filesystem::path& folder);

// What ranks that hold the same part of a probe differ by.
struct ReplicaDifference {
  std::vector<int> ranks{};  // other values than the first that holds it
  double absolute = 0;
  double relative = 0;
};

// The record of a step's probes.
struct RecordedActivations {
  std::unique_ptr<checkpoint::SavedTensors> tensors{};
  std::vector<std::string> order{};  // names of activations as forward makes them
  std::map<std::string, ReplicaDifference> replicas{};  // by name, those that differ
  std::vector<std::string> left_out{};                  // that no ranks have whole
};

class RecordedRun {
 public:
  // folder: of a run with gradients/ and checkpoints/ of its steps
  // learner: whose records these are, of a run that has learners (learner_tensors.h)
  // Throws: ConfigError when no step was recorded; CheckpointError when a record is damaged;
  //         Error when it has no metrics
  explicit RecordedRun(std::filesystem::path folder, std::optional<int> learner = {});

  const std::filesystem::path& folder() const { return folder_; }
  // The names of the parameters in the model's order.
  const std::vector<std::string>& parameters() const { return parameters_; }
  // The first recorded step: 1, or that after the checkpoint with which the run began.
  int64_t first_step() const { return first_step_; }
  // Steps whose gradients and checkpoint are there, from the first without a gap.
  int64_t num_steps() const { return num_steps_; }

  // Nothing when they were not recorded in this step.
  std::optional<RecordedActivations> activations(int64_t step) const;
  std::unique_ptr<checkpoint::SavedTensors> gradients(int64_t step) const;
  // By name, the first gradient that ranks hold differently; by how much is not known: infinite.
  std::map<std::string, ReplicaDifference> gradient_replicas(int64_t step) const;
  // Of a learner, what it has of the run's.
  std::unique_ptr<checkpoint::TensorSource> checkpoint(int64_t step) const;
  // The number of that name in the step's line of metrics.jsonl, or in a learner's record; NaN when
  // it is null or missing.
  double metric(int64_t step, const std::string& name) const;

 private:
  std::filesystem::path folder_;
  std::optional<int> learner_;
  std::filesystem::path records_;  // has gradients/ and activations/
  std::vector<std::string> parameters_;
  int64_t first_step_ = 1;
  int64_t num_steps_ = 0;
  StepNumbers metrics_;
};

}  // namespace trireme::verify
