// Chooses the layers of each pipeline stage from the measured times of the stages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {

// Thread safety: one thread drives it. The mesh must outlive it.
class StageBalance {
 public:
  StageBalance(PipelineLayout layout, const mesh::DeviceMesh& mesh);

  // Adds a step's times of this rank's stages.
  void add(const parallel::PipelineProfile& profile);

  // The layers of each stage that would make the slowest stage faster by more than `threshold` of
  // its time; empty if there are none. Discards the times.
  // Comm:       8 bytes per stage from every rank to all
  // Collective: every rank of the world
  std::optional<std::vector<int>> better_layers(double threshold);
  // From the last call, in seconds per microbatch: the mean over the ranks that have the stage.
  const std::vector<double>& stage_seconds() const { return stage_seconds_; }

 private:
  PipelineLayout layout_;
  const mesh::DeviceMesh& mesh_;
  std::vector<double> sums_;  // of this rank's stages
  int num_steps_ = 0;
  std::vector<double> stage_seconds_;
};

// "3,3"
std::string to_text(const std::vector<int>& layers);

}  // namespace trireme::train
