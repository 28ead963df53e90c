// What an annotated task adds to its data: a torch::nn::Module of any form, how a few of its
// tensors are split, and its loss.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trireme/base/error.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/spmd/annotate.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// A module with its forward(), which takes up to four tensors and returns one.
class AnnotatedNet {
 public:
  template <typename Net>
  AnnotatedNet(std::shared_ptr<Net> net)  // NOLINT(google-explicit-constructor): a return value
      : module_(net),
        forward_([net](std::span<const at::Tensor> in) { return call(*net, in); }),
        takes_(&takes_count<Net>) {}
  template <typename Net>
  AnnotatedNet(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : AnnotatedNet(net.ptr()) {}

  torch::nn::Module& module() const { return *module_; }
  at::Tensor forward(std::span<const at::Tensor> inputs) const { return forward_(inputs); }
  // Whether forward() takes so many tensors.
  bool takes(size_t count) const { return takes_(count); }

 private:
  template <typename Net, typename... Tensors>
  static constexpr bool kTakes = requires(Net& net, const Tensors&... in) {
    { net.forward(in...) } -> std::convertible_to<at::Tensor>;
  };
  template <typename Net>
  static bool takes_count(size_t count) {
    using T = at::Tensor;
    const bool takes[] = {false, kTakes<Net, T>, kTakes<Net, T, T>, kTakes<Net, T, T, T>,
                          kTakes<Net, T, T, T, T>};
    return count < std::size(takes) && takes[count];
  }
  template <typename Net, typename... Tensors>
  static at::Tensor call(Net& net, std::span<const at::Tensor> rest, const Tensors&... in) {
    if (!rest.empty()) {
      if constexpr (sizeof...(Tensors) < 4) return call(net, rest.subspan(1), in..., rest[0]);
    } else if constexpr (kTakes<Net, Tensors...>) {
      return net.forward(in...);
    }
    throw InternalError("forward() of an annotated module with other inputs than it takes");
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor(std::span<const at::Tensor>)> forward_;
  bool (*takes_)(size_t count);
};

class AnnotatedProblem {
 public:
  virtual ~AnnotatedProblem() = default;

  // The whole model, on the CPU, with initial values from torch's default generator, which is
  // seeded with train.seed before; converted to train.precision afterwards. Called several times:
  // it makes a new module each time.
  virtual AnnotatedNet make_net() const = 0;
  // How the axis "tensor" splits parameters, the inputs and the output, see annotate.md. The inputs
  // have the names of the batch's tensors, in the order of forward(); each is named, if only with
  // replicated(). The axis "data" divides samples: inputs and the output may say so, and nothing
  // else of it. `seed` is not read.
  virtual spmd::Annotations annotations() const = 0;
  // The sum of the losses of the batch's samples. Runs on the tensor axis too: the output is a
  // placed tensor with the sizes of the whole, and the batch's tensors are whole on every rank.
  // Shapes: output: what forward() returns -> scalar
  virtual at::Tensor loss_sum(const at::Tensor& output, const StageInput& batch) const = 0;
  // The states of traits().metrics, one after the other, in fp64.
  // Shapes: output: the whole, not placed, without a gradient -> [sum of Metric::size]
  virtual at::Tensor metric_states(const at::Tensor& /*output*/,
                                   const StageInput& /*batch*/) const {
    throw InternalError("a task with metrics that does not compute their states");
  }
  // The tensors of the batch that the two functions above read.
  virtual std::vector<std::string> target_names() const { return {"y"}; }
  // How many terms loss_sum() sums over, such as tokens.
  virtual int64_t num_terms(const dataset::Batch& batch) const { return batch.size(); }
  // Whether there are metric_states().
  virtual bool has_metrics() const = 0;
};

}  // namespace trireme::train
