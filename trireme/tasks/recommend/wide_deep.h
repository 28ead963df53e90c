// Wide & deep: the sum of a linear model over the features and an MLP over their embeddings. The
// linear model's weights of ids are tables of the output's width.
// Source: Cheng et al. 2016, arXiv:1606.07792
#pragma once

#include <memory>

#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/network.h"

namespace trireme::tasks::inline internal {

class WideDeep : public Network {
 public:
  explicit WideDeep(const RecommendProblem& problem);
  at::Tensor forward(const Samples& in) override;
  double flops() const override { return flops_; }

 private:
  int64_t deep_width_;  // of the deep tables' vectors
  int64_t num_outputs_;
  std::shared_ptr<Mlp> deep_;
  std::shared_ptr<Mlp> wide_;  // of the dense features; null without
  double flops_ = 0;
};

}  // namespace trireme::tasks::inline internal
