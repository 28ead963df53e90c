// A task whose model is a chain of ordinary torch modules, each of which takes the output of the
// one before. Trains under data parallelism, every ZeRO stage, recomputation and pipelines: the
// links are the units of ZeRO-3 and recompute, and the layers of pipeline stages. A model of
// another form is one link.
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

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/train/task/task.h"

namespace trireme::train {

class Chain {
 public:
  struct Link {
    std::string name;  // prefix of its parameters' names
    std::shared_ptr<torch::nn::Module> module;
    std::function<at::Tensor(const at::Tensor&)> forward;
  };

  // `module`: a torch::nn::ModuleHolder (such as torch::nn::Linear) or a std::shared_ptr of a
  // module with at::Tensor forward(at::Tensor).
  template <typename Module>
  void add(std::string name, Module module) {
    links_.push_back({std::move(name), pointer(module),
                      [module](const at::Tensor& x) mutable { return module->forward(x); }});
  }
  const std::vector<Link>& links() const& { return links_; }

 private:
  template <typename Held>
  static std::shared_ptr<torch::nn::Module> pointer(const torch::nn::ModuleHolder<Held>& holder) {
    return holder.ptr();
  }
  static std::shared_ptr<torch::nn::Module> pointer(std::shared_ptr<torch::nn::Module> module) {
    return module;
  }

  std::vector<Link> links_;
};

// (right, all): the state of the metric accuracy.
// Shapes: logits_BC [B, C], labels_B [B] int64 -> [2] fp64
at::Tensor accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B);

class ChainTask : public Task {
 public:
  // Builds the whole model on the CPU in fp32, with initial values from torch's default generator,
  // which is seeded with train.seed before. Called on every rank and for every stage: it must give
  // the same model each time. The masks of torch's Dropout are the same on every rank that has the
  // microbatch and after every resume, unless ranks are threads of one process.
  virtual Chain make_chain() const = 0;
  // The sum of the losses of the batch's samples.
  // Shapes: output: what the last link returns -> scalar
  virtual at::Tensor loss_sum(const at::Tensor& output, const StageInput& batch) const = 0;
  // The states of metrics(), one after the other, in fp64.
  // Shapes: output: as for loss_sum() -> [sum of Metric::size]
  virtual at::Tensor metric_states(const at::Tensor& output, const StageInput& batch) const;
  // The tensor of the batch that the first link takes, and those that loss_sum() reads.
  virtual std::string input_name() const { return "x"; }
  virtual std::vector<std::string> target_names() const { return {"y"}; }

  std::vector<std::string> axes() const override { return {"pipeline"}; }
  std::vector<model::ParameterPlan> parameters(int tensor_ranks) const override;
  int64_t num_parameters() const override;
  std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const override;
  std::vector<StageEdges> edges(int num_stages) const override;
  std::unique_ptr<StageModel> make_stage(const StageRequest& request) const override;
  void check(const RunConfig& config) const override;
  std::string model_name() const override;
  double sample_bytes() const override;
  DataIdentity identify(const dataset::Source& source) const override {
    return identify_samples(source);
  }
};

}  // namespace trireme::train
