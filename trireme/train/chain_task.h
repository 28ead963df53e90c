// A task whose model is a chain of ordinary torch modules: each takes the output of the one before.
// Trains under data parallelism, every ZeRO stage, recomputation and pipelines: the links are the
// units of ZeRO-3 and recompute, and the layers of pipeline stages. A model of another form is one
// link.
//
//   class Digits : public trireme::train::ChainTask {
//     Chain make_chain() const override {
//       Chain chain;
//       chain.add("hidden", torch::nn::Sequential(torch::nn::Linear(64, 128), torch::nn::ReLU()));
//       chain.add("head", torch::nn::Linear(128, 10));
//       return chain;
//     }
//     at::Tensor loss_sum(const at::Tensor& logits_BC, const StageInput& batch) const override;
//     ...
//   };
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/train/chain_model.h"
#include "trireme/train/task/predictor.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// Its rows have the tensor input_name(), and its output is what the last link returns.
using ChainAnswers = OutputAnswers;

class ChainTask : public Task {
 public:
  ChainTask();
  ChainTask(const ChainTask& other);
  ChainTask& operator=(const ChainTask&) = delete;

  // The whole model, see ChainModel. The masks of torch's Dropout are the same on every rank that
  // has the microbatch and after every resume, unless ranks are threads of one process.
  virtual Chain make_chain() const = 0;
  // Turns the batch's input into what the first link takes, such as integers into numbers of the
  // weights' dtype. Input of floating point is converted to it.
  virtual at::Tensor prepare(const at::Tensor& input, at::ScalarType dtype,
                             const StageInput& batch) const;
  // The sum of the losses of the batch's samples.
  // Shapes: output: what the last link returns -> scalar
  virtual at::Tensor loss_sum(const at::Tensor& output, const StageInput& batch) const = 0;
  // The states of traits().metrics, one after the other, in fp64.
  // Shapes: output: as for loss_sum() -> [sum of Metric::size]
  virtual at::Tensor metric_states(const at::Tensor& output, const StageInput& batch) const;
  // The tensor of the batch that the first link takes, and those that loss_sum() reads.
  virtual std::string input_name() const { return "x"; }
  virtual std::vector<std::string> target_names() const { return {"y"}; }

  const TaskModel& model() const override { return model_; }

  // For PredictingTask::make_predictor(): the chain with the trained weights, in evaluation. Call
  // it when make_chain() can be called. The task must outlive it.
  // Throws: CheckpointError when the weights do not fit
  std::unique_ptr<Predictor> chain_predictor(const PredictRequest& request,
                                             ChainAnswers answers) const;
  // For PredictingTask::make_answering(): a copy whose chain answers rows.
  std::unique_ptr<Task> answering_chain() const;

 private:
  ChainGoal goal() const;

  bool is_answering_ = false;
  ChainModel model_;
};

}  // namespace trireme::train
