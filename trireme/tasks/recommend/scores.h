// The loss of a recommendation model, and its metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/tasks/recommend/network.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks::inline internal {

// Shapes below: logits as of Network::forward(), label_B [B]
class Scores {
 public:
  virtual ~Scores() = default;
  // The sum of the losses of the samples.
  virtual at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& label_B) const = 0;
  // The states of metrics_of(), one after the other, in fp64.
  virtual at::Tensor metric_states(const at::Tensor& logits, const at::Tensor& label_B) const = 0;

  // Adds samples of an evaluation, for finish().
  virtual void add(const Samples& samples, const at::Tensor& logits, const at::Tensor& label_B) = 0;
  virtual void clear() = 0;
  // The values of evaluation_metrics_of().
  // Collective: every rank that reads different data
  virtual std::vector<double> finish() = 0;
};

// Logits of bf16 and fp16 in fp32, for losses and metrics; others as they are.
at::Tensor wide(const at::Tensor& logits);

std::vector<train::Metric> metrics_of(const RecommendProblem& problem);
std::vector<std::string> evaluation_metrics_of(const RecommendProblem& problem);

}  // namespace trireme::tasks::inline internal
