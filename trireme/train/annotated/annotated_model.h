// The model of an annotated task, whose parameters the tensor axis splits as annotated. To the loop
// they are this rank's blocks with their layouts, like those of any model on the tensor axis, so
// data parallelism, ZeRO, the gradient norm, checkpoints and resumption are the same code. The
// links of a chain are the layers of pipeline stages; between stages tensors are whole on every
// rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/spmd/annotate.h"
#include "trireme/train/annotated/annotated_problem.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// Not thread safe.
class AnnotatedModel : public TaskModel {
 public:
  // The problem must outlive the model and its stages.
  explicit AnnotatedModel(const AnnotatedProblem& problem) : problem_(problem) {}
  AnnotatedModel(const AnnotatedModel&) = delete;
  AnnotatedModel& operator=(const AnnotatedModel&) = delete;

  ModelTraits traits() const override;
  // Refuses what an annotated model does not have: parts of links to recompute, inputs of links
  // that can be offloaded, and sequence parallelism.
  void check(const RunConfig& config) const override;
  // Refuses annotations on other axes, patterns and splits that do not fit, inputs that forward()
  // does not take, links that share a parameter, and modules whose statistics would be those of
  // one rank's samples.
  void check_layout(const RunConfig& config) const override;
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override;
  std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const override;
  std::vector<StageEdges> edges(int num_stages) const override;
  // Throws: ConfigError on a device that is no CPU
  std::unique_ptr<StageModel> make_stage(const StageRequest& request) const override;
  // The same for another goal.
  std::unique_ptr<StageModel> make_stage(const StageRequest& request, NetGoal goal) const;

 private:
  struct Outline;
  const Outline& outline() const;
  void check_links() const;
  void add_goal(StageEdges& edges) const;

  const AnnotatedProblem& problem_;
  mutable std::shared_ptr<const Outline> outline_;
};

}  // namespace trireme::train
