// Runs one stage on its rank: forwards whose graphs end at the stage's inputs, and their backwards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/pipeline/run/stage_graph.h"
#include "trireme/parallel/pipeline/run/tensor_channel.h"

namespace trireme::parallel {

class StageRunner {
 public:
  // `stage` must outlive it.
  // Throws: ConfigError when it has no forward
  explicit StageRunner(const PipelineStage& stage);
  ~StageRunner();
  StageRunner(StageRunner&&) noexcept;

  // Returns the outputs without their graph. With `keeps_graph`, a backward() must follow. Until
  // then the graph stays in memory, and outputs only if the graph needs them.
  // Throws: ConfigError when the stage does not return as many outputs as it declares
  std::vector<EdgeTensor> forward(int64_t microbatch, std::vector<EdgeTensor> inputs,
                                  bool keeps_graph);
  // Takes the outputs' gradients and returns the inputs' gradients, undefined where there is none.
  // Adds the parameters' gradients to .grad(). Frees the graph.
  std::vector<at::Tensor> backward(int64_t microbatch, std::vector<at::Tensor> gradients);

  size_t num_live() const { return live_.size(); }
  void clear();

 private:
  struct Live;
  const PipelineStage* stage_;
  std::map<int64_t, std::unique_ptr<Live>> live_;  // by microbatch
};

}  // namespace trireme::parallel
