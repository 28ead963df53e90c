// A model that is a chain of torch modules, each of which takes the output of the one before: its
// parameters, costs, pipeline stages. A task asks one for what Task wants to know of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/train/task/task.h"

namespace trireme::train {

// What a link costs for one sample. Zero in all links: the time is taken as proportional to the
// number of parameters, as in matrix products.
struct LinkCost {
  double flops = 0;        // of forward
  double activations = 0;  // elements that forward keeps for backward
};

class Chain {
 public:
  struct Link {
    std::string name;
    std::shared_ptr<torch::nn::Module> module;
    std::function<at::Tensor(const at::Tensor&)> forward;
    LinkCost cost{};
  };

  // name: the prefix of its parameters' names, which may have dots ("layer1.0"). "": the parameters
  //       have the names that they have in the module, and belong to its children.
  // module: a torch::nn::ModuleHolder (such as torch::nn::Linear) or a std::shared_ptr of a module
  //         with at::Tensor forward(at::Tensor).
  template <typename Module>
  void add(std::string name, Module module, LinkCost cost = {}) {
    links_.push_back({std::move(name), pointer(module),
                      [module](const at::Tensor& x) mutable { return module->forward(x); }, cost});
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

// What a chain learns from. The functions must outlive the stages.
struct ChainGoal {
  std::string input = "x";  // the tensor of the batch that the first link takes
  // The tensors of the batch that the functions below read.
  std::vector<std::string> targets = {"y"};
  // Turns the batch's input into what the first link gets. dtype: that of the weights
  std::function<at::Tensor(const at::Tensor& input, at::ScalarType dtype, const StageInput& batch)>
      prepare{};
  // The sum of the losses of the batch's samples. output: what the last link returns -> scalar
  std::function<at::Tensor(const at::Tensor& output, const StageInput& batch)> loss_sum{};
  // The states of the task's metrics, see Task::metrics(); null without metrics.
  std::function<at::Tensor(const at::Tensor& output, const StageInput& batch)> metric_states{};
};

// Not thread safe.
class ChainModel {
 public:
  // make: builds the whole model, on the CPU in fp32, with initial values from torch's default
  //       generator, which is seeded with train.seed before. Called on every rank and for every
  //       stage: it must give the same model each time.
  explicit ChainModel(std::function<Chain()> make) : make_(std::move(make)) {}
  ChainModel(const ChainModel&) = delete;
  ChainModel& operator=(const ChainModel&) = delete;

  // Throws: ConfigError when the config asks for what a chain cannot do
  static void check(const RunConfig& config);
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const;
  int64_t num_parameters() const;
  std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const;
  double flops() const;  // of Throughput; 0 where the links state none
  std::vector<StageEdges> edges(int num_stages, const ChainGoal& goal) const;
  // Whether a link has a model::BatchNorm.
  bool has_batch_norm() const;
  // "conv1 -> bn1 -> ..."
  std::string name() const;
  // Throws: ConfigError when the model has no link, two links of one name, a parameter in two
  //         links, or a torch module whose running statistics are those of one rank
  std::unique_ptr<StageModel> make_stage(const StageRequest& request, const ChainGoal& goal) const;

 private:
  struct Outline;
  const Outline& outline() const;

  std::function<Chain()> make_;
  mutable std::shared_ptr<const Outline> outline_;
};

}  // namespace trireme::train
