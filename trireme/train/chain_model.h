// A model that is a chain of torch modules: each takes the output of the one before. Knows its
// parameters, costs and pipeline stages. ChainTask has one.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trireme/train/task/task.h"

namespace trireme::train {

// The cost of a link per sample. If it is zero for all links, the time is taken as proportional to
// the number of parameters, as in matrix products.
struct LinkCost {
  double flops = 0;        // of forward
  double activations = 0;  // elements that forward keeps for backward
};

// A torch::nn::ModuleHolder (such as torch::nn::Linear), or a std::shared_ptr of a module.
template <typename T>
concept HeldModule = std::is_base_of_v<torch::detail::ModuleHolderIndicator, T> ||
    std::convertible_to<T, std::shared_ptr<torch::nn::Module>>;
// A function without arguments that makes one.
template <typename T>
concept MakesModule = !HeldModule<T> && HeldModule<std::invoke_result_t<T&>>;

class Chain {
 public:
  struct Link {
    std::string name;
    std::shared_ptr<torch::nn::Module> module;  // null: still to be made
    std::function<at::Tensor(const at::Tensor&)> forward;
    LinkCost cost{};
    std::function<void(Link&)> make{};  // sets module and forward; null: they are there
  };

  // name: the prefix of its parameters' names, which may have dots ("layer1.0"). "": the parameters
  //       have the names that they have in the module, and belong to its children.
  // module: has at::Tensor forward(at::Tensor).
  template <HeldModule Module>
  void add(std::string name, Module module, LinkCost cost = {}) {
    links_.push_back({std::move(name), nullptr, nullptr, cost});
    set_module(links_.back(), std::move(module));
  }
  // The same for a module that make() returns, which is called when the link's turn comes, so that
  // no rank has the whole model when ZeRO shards it. It is called after make_chain() has returned,
  // so that it captures by value, and several times: it makes a new module each time. The values
  // drawn are those of modules made in place, if all links are functions or none is.
  template <MakesModule Make>
  void add(std::string name, Make make, LinkCost cost = {}) {
    links_.push_back({std::move(name), nullptr, nullptr, cost,
                      [make = std::move(make)](Link& link) mutable { set_module(link, make()); }});
  }
  const std::vector<Link>& links() const& { return links_; }
  std::vector<Link> take_links() && { return std::move(links_); }

 private:
  template <typename Module>
  static void set_module(Link& link, Module module) {
    link.module = pointer(module);
    link.forward = [module](const at::Tensor& x) mutable { return module->forward(x); };
  }
  template <typename Held>
  static std::shared_ptr<torch::nn::Module> pointer(const torch::nn::ModuleHolder<Held>& holder) {
    return holder.ptr();
  }
  static std::shared_ptr<torch::nn::Module> pointer(std::shared_ptr<torch::nn::Module> module) {
    return module;
  }

  std::vector<Link> links_;
};

// The training goal of a chain. The functions must outlive the stages.
struct ChainGoal {
  std::string input = "x";  // the tensor of the batch that the first link takes
  // The tensors of the batch that the functions below read.
  std::vector<std::string> targets = {"y"};
  // Turns the batch's input into what the first link gets. dtype: that of the weights
  std::function<at::Tensor(const at::Tensor& input, at::ScalarType dtype, const StageInput& batch)>
      prepare{};
  // The sum of the losses of the batch's samples. output: what the last link returns -> scalar
  std::function<at::Tensor(const at::Tensor& output, const StageInput& batch)> loss_sum{};
  // The states of the task's metrics, see TaskTraits::metrics; null without metrics.
  std::function<at::Tensor(const at::Tensor& output, const StageInput& batch)> metric_states{};
  // The last stage writes what the last link returns, as "scores", in place of loss and metrics.
  // No targets are read.
  bool gives_output = false;
};

// Checks what a config may not ask of a model without parts of its own kind.
// Throws: ConfigError
void check_chain(const RunConfig& config);

// Not thread safe.
class ChainModel : public TaskModel {
 public:
  // make: builds the whole model, on the CPU in fp32, with initial values from torch's default
  //       generator, which is seeded with train.seed before. Called on every rank and for every
  //       stage: it must give the same model each time.
  // goal: of a run with this train.seed
  ChainModel(std::function<Chain()> make, std::function<ChainGoal(uint64_t seed)> goal)
      : make_(std::move(make)), goal_(std::move(goal)) {}
  ChainModel(const ChainModel&) = delete;
  ChainModel& operator=(const ChainModel&) = delete;

  // Its name is "chain of conv1 -> bn1 -> ...". It has no FLOPs where the links state none.
  ModelTraits traits() const override;
  void check(const RunConfig& config) const override { check_chain(config); }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override;
  std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const override;
  std::vector<StageEdges> edges(int num_stages) const override;
  // Throws: ConfigError when the model has no link, two links of one name, a parameter in two
  //         links, or a torch module whose running statistics are those of one rank
  std::unique_ptr<StageModel> make_stage(const StageRequest& request) const override;
  // The same for another goal.
  std::unique_ptr<StageModel> make_stage(const StageRequest& request, const ChainGoal& goal) const;

 private:
  struct Outline;
  const Outline& outline() const;

  std::function<Chain()> make_;
  std::function<ChainGoal(uint64_t seed)> goal_;
  mutable std::shared_ptr<const Outline> outline_;
};

}  // namespace trireme::train
