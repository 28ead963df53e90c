// One stage on its rank: forwards whose graphs end at the stage's inputs, and their backwards.
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
  // `stage` must outlive it. Throws: ConfigError when it has no forward
  explicit StageRunner(const PipelineStage& stage);
  ~StageRunner();
  StageRunner(StageRunner&&) noexcept;

  // The outputs, without their graph. With `keeps_graph` backward() is expected: until then the
  // graph is in memory, the outputs only where it needs them.
  // Throws: ConfigError when the stage returns another number of outputs than it declares
  std::vector<EdgeTensor> forward(int64_t microbatch, std::vector<EdgeTensor> inputs,
                                  bool keeps_graph);
  // From the gradients of the outputs to those of the inputs; undefined where there is none. The
  // stage's parameters have theirs in .grad(). Frees the graph.
  std::vector<at::Tensor> backward(int64_t microbatch, std::vector<at::Tensor> gradients);

  size_t num_live() const { return live_.size(); }
  void clear();

 private:
  struct Live;
  const PipelineStage* stage_;
  std::map<int64_t, std::unique_ptr<Live>> live_;  // by microbatch
};

}  // namespace trireme::parallel
