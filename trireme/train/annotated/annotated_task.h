// A task whose model is any torch::nn::Module with annotations: how the tensor axis splits a few of
// its tensors. Trains under data parallelism, ZeRO-1 and ZeRO-2, and on the tensor axis, in every
// combination; what else the loop has is the same as for any task.
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

#include "trireme/train/annotated/annotated_model.h"
#include "trireme/train/annotated/annotated_problem.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

class AnnotatedTask : public Task, public AnnotatedProblem {
 public:
  AnnotatedTask() : model_(*this) {}
  // A copy may have other keys, so its make_net() may build another module.
  AnnotatedTask(const AnnotatedTask& other) : Task(other), AnnotatedProblem(other), model_(*this) {}
  AnnotatedTask& operator=(const AnnotatedTask&) = delete;

  const TaskModel& model() const override { return model_; }
  bool has_metrics() const override { return !traits().metrics.empty(); }

 private:
  AnnotatedModel model_;
};

}  // namespace trireme::train
