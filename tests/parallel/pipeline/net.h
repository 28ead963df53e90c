// A small network with what is awkward in a pipeline: uneven widths, a skip connection, a weight
// used twice, an embedding and an integer edge; as plain autograd, and cut into stages anywhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/pipeline/run/executor.h"

namespace trireme::parallel {

using Gradients = std::map<std::string, at::Tensor>;

class Net {
 public:
  static constexpr int kLayers = 9;

  // With `deferred`, its matrices' gradients know how to wait.
  explicit Net(at::ScalarType dtype, DeferredWork* deferred = nullptr);

  // Stages of about equally many layers.
  std::vector<PipelineStage> stages(int num_stages);
  // One microbatch's loss, without stages.
  at::Tensor loss(int64_t microbatch, int64_t num_microbatches);
  static at::Tensor feed(const std::string& edge, int64_t microbatch, int64_t num_microbatches);

  // Of layers [begin, end), by name; undefined ones are left out.
  Gradients gradients(int begin = 0, int end = kLayers) const;
  std::vector<at::Tensor> parameters() const { return weights_; }

 private:
  at::Tensor matmul(const at::Tensor& x, const at::Tensor& weight) const;
  void layer(int index, std::map<std::string, at::Tensor>& values) const;

  DeferredWork* deferred_;
  std::vector<at::Tensor> weights_;  // one a layer
};

// The layers of each stage: as even as it goes.
std::vector<int> layers_of_stages(int num_stages);

}  // namespace trireme::parallel
