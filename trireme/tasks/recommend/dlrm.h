// DLRM: an MLP maps the dense features to the width of the embeddings, and their interaction with
// the embeddings feeds a second MLP. The interaction of "dlrm" is the dot products of all pairs,
// next to the mapped dense features; that of "dlrm-dcnv2" is a cross network over all of them, as
// in MLPerf.
// Sources: Naumov et al. 2019, arXiv:1906.00091; Wang et al. 2021, arXiv:2008.13535
#pragma once

#include <memory>

#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/network.h"

namespace trireme::tasks::inline internal {

class Dlrm : public Network {
 public:
  explicit Dlrm(const RecommendProblem& problem);
  at::Tensor forward(const Samples& in) override;
  double flops() const override { return flops_; }

 private:
  int64_t width_;                        // D
  std::shared_ptr<Mlp> bottom_;          // null without dense features
  std::shared_ptr<CrossNetwork> cross_;  // null: dot products
  std::shared_ptr<Mlp> top_;
  double flops_ = 0;
};

}  // namespace trireme::tasks::inline internal
