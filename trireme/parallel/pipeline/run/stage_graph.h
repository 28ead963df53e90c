// The stages of a pipeline and the named edges between them. One stage writes an edge, and any
// later stages read it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Computes the stage's outputs from its inputs, in the order of their names. Shapes and dtypes may
// differ between microbatches, and tensors may have no rows. Must not change the inputs in place.
using StageForward =
    std::function<std::vector<at::Tensor>(int64_t microbatch, std::vector<at::Tensor> inputs)>;

struct PipelineStage {
  std::string name;  // shown in errors
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // May be empty on ranks that do not hold the stage. A parameter belongs to one stage. If two
  // stages share one, each has its own leaf, and the caller sums their gradients.
  StageForward forward;
};

// A place in a stage's inputs or outputs.
struct StagePort {
  int stage = 0;
  size_t index = 0;
  auto operator<=>(const StagePort&) const = default;
};

class StageGraph {
 public:
  // `fed`: edges that come from outside, to any stages.
  // Throws: ConfigError when an edge has no source or two, is read by its source or an earlier
  //         stage, or is listed twice by a stage
  StageGraph(std::vector<PipelineStage> stages, std::vector<std::string> fed);

  const std::vector<PipelineStage>& stages() const { return stages_; }
  bool is_fed(const StagePort& input) const { return sources_[input.stage][input.index].stage < 0; }
  // The output that an input comes from. The input must not be fed.
  StagePort source(const StagePort& input) const { return sources_[input.stage][input.index]; }
  // The inputs that read an output, in ascending order of stages.
  const std::vector<StagePort>& readers(const StagePort& output) const {
    return readers_[output.stage][output.index];
  }
  // The inputs of `edge.to` that come from `edge.from`, ascending.
  std::vector<StagePort> inputs_between(const StageEdge& edge) const;
  // Sorted, without duplicates.
  const std::vector<StageEdge>& edges() const { return edges_; }
  // Throws: ConfigError unless a stage writes the edge `loss` and none reads it
  void check_loss(const std::string& loss) const;
  // A text for comparison between ranks.
  std::string describe() const;

 private:
  std::vector<PipelineStage> stages_;
  std::vector<std::vector<StagePort>> sources_;               // by stage and input
  std::vector<std::vector<std::vector<StagePort>>> readers_;  // by stage and output
  std::vector<StageEdge> edges_;
};

}  // namespace trireme::parallel
