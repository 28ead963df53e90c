// A part of an annotated module as the loop sees it: a module that holds this rank's blocks of the
// parameters, under their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/mesh/device_mesh.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/unit.h"
#include "trireme/spmd/annotate.h"
#include "trireme/train/annotated/annotated_problem.h"
#include "trireme/train/annotated/placed_probes.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// The links of a stage.
struct StageLinks {
  size_t first = 0;
  size_t count = 1;
  NetGoal goal = NetGoal::kLoss;  // of the last stage
  spmd::Annotations notes{};      // whose patterns match parameters of these links
};

// Thread safety: one thread drives it. The problem and the axes must outlive it.
class AnnotatedStage : public StageModel {
 public:
  // Collective: every rank of the tensor axis
  // Throws:     ConfigError as spmd::annotate()
  AnnotatedStage(const AnnotatedProblem& problem, const StageRequest& request, StageLinks links);

  torch::nn::Module& module() override { return *blocks_; }
  std::vector<parallel::Unit> units() const override { return units_; }
  void run_units_with(parallel::RunUnit run) override;
  std::vector<at::Tensor> forward(const StageInput& in) override;
  int64_t num_terms(const dataset::Batch& batch) const override {
    return problem_.num_terms(batch);
  }

 private:
  struct Parameter {
    at::Tensor placed;  // of the net
    at::Tensor block;   // of blocks_; data parallelism gives it other memory
  };

  void make_net();
  at::Tensor hold_block(const std::string& name, const at::Tensor& parameter);
  void follow_blocks();
  std::vector<at::Tensor> inputs_of(const StageInput& in) const;
  at::Tensor run_links(const StageInput& in);
  at::Tensor run_link(size_t link, const std::vector<at::Tensor>& inputs,
                      const std::optional<model::TrainingPlace>& place);
  void seed_dropout(const model::TrainingPlace& place, size_t link) const;

  const AnnotatedProblem& problem_;
  StageLinks links_;
  model::ModelPart part_;
  int stage_;
  uint64_t seed_;
  at::ScalarType dtype_;
  model::RecomputePlan recompute_;
  std::unique_ptr<comm::Communicator> alone_;  // without a tensor axis
  mesh::DeviceMesh mesh_;
  std::optional<spmd::AnnotatedTensors> tensors_;
  std::optional<AnnotatedNet> net_;  // of this stage's links
  std::shared_ptr<torch::nn::Module> blocks_;
  std::vector<Parameter> parameters_;
  std::vector<parallel::Unit> units_;  // by link
  parallel::RunUnit run_unit_ = parallel::run_directly;
  PlacedProbes probes_;
};

}  // namespace trireme::train
