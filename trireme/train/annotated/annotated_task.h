// A task whose model is any torch::nn::Module with annotations: how the tensor axis splits a few of
// its tensors. Trains under data parallelism, every ZeRO stage and recomputation, on the tensor
// axis and, if it is a chain of modules, in pipelines, in every combination; what else the loop has
// is the same as for any task.
//
//   class Digits : public trireme::train::AnnotatedTask {
//     AnnotatedNet make_net() const override { return std::make_shared<Net>(64); }
//     spmd::Annotations annotations() const override {
//       return {.parameters = {{"fc1.*", spmd::split(0, "tensor")},
//                              {"fc2.weight", spmd::split(1, "tensor")}},
//               .inputs = {{"x", spmd::split(0, "data")}}};
//     }
//     at::Tensor loss_sum(const at::Tensor& logits_BC, const StageInput& batch) const override;
//     ...
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/key.h"
#include "trireme/train/annotated/annotated_model.h"
#include "trireme/train/annotated/annotated_problem.h"
#include "trireme/train/task/common_keys.h"
#include "trireme/train/task/predictor.h"
#include "trireme/train/task/task.h"

namespace trireme::spmd {
struct Graph;
}

namespace trireme::train {

// Keys of [parallel] that annotated tasks have.
struct NotesConfig {
  TRIREME_KEYS_BEGIN(NotesConfig)
  TRIREME_KEY(std::string, notes, "", kMayChange,
              "splits beside those of the task's annotations, as `shard --auto --write` prints "
              "them; parallel.auto chooses them; empty = none")
  TRIREME_KEYS_END()
};

class AnnotatedTask : public Task, public AnnotatedProblem, public CommonKeys {
 public:
  AnnotatedTask() : model_(*this) {}
  // A copy may have other keys, so its make_net() may build another module.
  AnnotatedTask(const AnnotatedTask& other)
      : Task(other),
        AnnotatedProblem(other),
        CommonKeys(other),
        notes_(other.notes_),
        goal_(other.goal_),
        model_(*this) {}
  AnnotatedTask& operator=(const AnnotatedTask&) = delete;

  const TaskModel& model() const override { return model_; }
  void add_common_keys(Keys& keys) override { keys.add("parallel", notes_); }
  // annotations() with parallel.notes.
  spmd::Annotations all_annotations() const override;
  // Of parallel.notes.
  const std::string& notes() const { return notes_.notes; }
  // A step on a microbatch of `samples`, for a plan. Call it when the data is open.
  // Throws: ConfigError as spmd::trace_step()
  spmd::Graph trace(const RunConfig& config, int64_t samples) const;
  bool has_metrics() const override { return !traits().metrics.empty(); }
  NetGoal goal() const override { return goal_; }

  // For PredictingTask::make_predictor(): the module with the trained weights, in evaluation. Its
  // rows have the inputs of annotations(), and its output is what forward() returns, whole. Call it
  // when make_net() can be called. The task must outlive it.
  // Throws: CheckpointError when the weights do not fit
  std::unique_ptr<Predictor> annotated_predictor(const PredictRequest& request,
                                                 OutputAnswers answers) const;
  // For PredictingTask::make_answering(): a copy whose module answers rows.
  std::unique_ptr<Task> answering_module() const;

 private:
  NotesConfig notes_;
  NetGoal goal_ = NetGoal::kLoss;
  AnnotatedModel model_;
};

}  // namespace trireme::train
