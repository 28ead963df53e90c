// What an annotated task adds to its data: a torch::nn::Module of any form, how a few of its
// tensors are split, and its loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/error.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/spmd/annotate.h"
#include "trireme/train/annotated/annotated_net.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// What the last stage writes.
enum class NetGoal {
  kLoss,    // the loss, and the states of metrics
  kScores,  // what the module returns, whole: predict reads it
};

class AnnotatedProblem {
 public:
  virtual ~AnnotatedProblem() = default;

  // The whole model, a module or a chain, on the CPU, with initial values from torch's default
  // generator, which is seeded with train.seed before; converted to train.precision afterwards.
  // Called several times: it makes a new module each time.
  virtual AnnotatedNet make_net() const = 0;
  // How the axis "tensor" splits parameters, the inputs and the output, see annotate.md. The inputs
  // have the names of the batch's tensors, in the order of forward(); each is named, if only with
  // replicated(). The axis "data" divides samples: inputs and the output may say so, and nothing
  // else of it. `seed` is not read.
  virtual spmd::Annotations annotations() const = 0;
  // The same with what a plan adds.
  virtual spmd::Annotations all_annotations() const { return annotations(); }
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
  virtual NetGoal goal() const = 0;
};

}  // namespace trireme::train
