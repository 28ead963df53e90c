// Which layers each pipeline stage should have, by the times that its stages took.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/train/parallel/layout.h"

namespace trireme::train {

// Thread safety: one thread drives it. The mesh outlives it.
class StageBalance {
 public:
  StageBalance(PipelineLayout layout, const mesh::DeviceMesh& mesh);

  // Takes a step's times of this rank's stages.
  void add(const parallel::PipelineProfile& profile);

  // The layers of each stage that would make the slowest one faster by more than `threshold` of its
  // time; nothing when none would. Forgets the times.
  // Comm:       8 bytes a stage from every rank to all
  // Collective: every rank of the world
  std::optional<std::vector<int>> better_layers(double threshold);
  // Of the last call, in seconds a microbatch: the mean over the ranks that have the stage.
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
