// The stages of a pipeline and the named edges between them: what one stage writes, any later ones
// read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// The stage's outputs from its inputs, in the order of their names. Shapes and dtypes may differ
// from microbatch to microbatch; no rows are fine. The inputs are not to be changed in place.
using StageForward =
    std::function<std::vector<at::Tensor>(int64_t microbatch, std::vector<at::Tensor> inputs)>;

struct PipelineStage {
  std::string name;  // in errors
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // May be empty on ranks that do not hold the stage. A parameter belongs to one stage: one that
  // two stages share is a leaf in each, and the caller sums their gradients.
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
  // Throws: ConfigError when an edge has no source, two sources, is read by a stage before or at
  //         its source, or is listed twice by a stage
  StageGraph(std::vector<PipelineStage> stages, std::vector<std::string> fed);

  const std::vector<PipelineStage>& stages() const { return stages_; }
  bool is_fed(const StagePort& input) const { return sources_[input.stage][input.index].stage < 0; }
  // Of an input that is not fed: the output it comes from.
  StagePort source(const StagePort& input) const { return sources_[input.stage][input.index]; }
  // The inputs that read an output, in ascending order of stages.
  const std::vector<StagePort>& readers(const StagePort& output) const {
    return readers_[output.stage][output.index];
  }
  // What goes from one stage to another: inputs of `edge.to`, ascending.
  std::vector<StagePort> inputs_between(const StageEdge& edge) const;
  // Sorted, each once.
  const std::vector<StageEdge>& edges() const { return edges_; }
  // Throws: ConfigError unless a stage writes the edge `loss` and none reads it
  void check_loss(const std::string& loss) const;
  // For comparison between ranks.
  std::string describe() const;

 private:
  std::vector<PipelineStage> stages_;
  std::vector<std::vector<StagePort>> sources_;               // by stage and input
  std::vector<std::vector<std::vector<StagePort>>> readers_;  // by stage and output
  std::vector<StageEdge> edges_;
};

}  // namespace trireme::parallel
