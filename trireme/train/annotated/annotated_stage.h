// An annotated module as the loop sees it: a module that holds this rank's blocks of the
// parameters, under their names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/mesh/device_mesh.h"
#include "trireme/spmd/annotate.h"
#include "trireme/train/annotated/annotated_problem.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// Thread safety: one thread drives it. The problem and the axes must outlive it.
class AnnotatedStage : public StageModel {
 public:
  // Collective: every rank of the tensor axis
  // Throws:     ConfigError as spmd::annotate()
  AnnotatedStage(const AnnotatedProblem& problem, const StageRequest& request);

  torch::nn::Module& module() override { return *blocks_; }
  std::vector<at::Tensor> forward(const StageInput& in) override;
  int64_t num_terms(const dataset::Batch& batch) const override {
    return problem_.num_terms(batch);
  }

 private:
  struct Parameter {
    at::Tensor placed;  // of the net
    at::Tensor block;   // of blocks_; data parallelism gives it other memory
  };

  void make_net(const spmd::Annotations& notes);
  void hold(const std::string& name, const at::Tensor& tensor, bool is_parameter);
  void follow_blocks();
  void seed_dropout(const model::TrainingPlace& place) const;

  const AnnotatedProblem& problem_;
  uint64_t seed_;
  at::ScalarType dtype_;
  std::unique_ptr<comm::Communicator> alone_;  // without a tensor axis
  mesh::DeviceMesh mesh_;
  std::vector<std::string> inputs_;
  std::optional<spmd::AnnotatedTensors> tensors_;
  std::optional<AnnotatedNet> net_;
  std::shared_ptr<torch::nn::Module> blocks_;
  std::vector<Parameter> parameters_;
};

}  // namespace trireme::train
