// DLRM: an MLP brings the dense features to the width of the embeddings, their interaction with the
// embeddings feeds a second MLP. "dlrm" has the dot products of all pairs beside the dense
// features, "dlrm-dcnv2" a cross network over all of them, as in MLPerf.
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
