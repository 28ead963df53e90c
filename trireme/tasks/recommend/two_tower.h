// Two-tower retrieval: one MLP maps a query to a vector and another maps an item; their cosine is
// the score. A query's negatives are the other items of its microbatch.
// Source: Yi et al. 2019, "Sampling-bias-corrected neural modeling for large corpus item
//         recommendations", section 3
#pragma once

#include <memory>

#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/network.h"

namespace trireme::tasks::inline internal {

class TwoTower : public Network {
 public:
  explicit TwoTower(const RecommendProblem& problem);
  // The logits of the samples' own items are on the diagonal. Those of further occurrences of the
  // same item are -infinity, so that no item is its own negative.
  at::Tensor forward(const Samples& in) override;
  double flops() const override { return flops_; }

  // Shapes: the columns of one side [B, W_side] -> unit vectors [B, D]
  at::Tensor queries(const at::Tensor& dense_BF, const at::Tensor& embedded_BW);
  at::Tensor items(const at::Tensor& embedded_BW);

  int64_t query_width() const { return query_width_; }  // columns of queries, which are first

 private:
  int64_t query_width_;
  double temperature_;
  std::shared_ptr<Mlp> query_, item_;
  double flops_ = 0;
};

}  // namespace trireme::tasks::inline internal
