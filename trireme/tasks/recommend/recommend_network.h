// A recommendation model without its tables: computes logits from dense features and embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/parallel/data/unit.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/recommend_problem.h"

namespace trireme::tasks {

// The features of a microbatch.
struct Samples {
  at::Tensor dense_BF;     // [B, F]; undefined without dense features
  at::Tensor embedded_BW;  // [B, W] the vectors of the model's tables side by side
  at::Tensor item_B{};     // [B] int64 two-tower: the number of each sample's item
};

// Each child module is a unit: ZeRO-3 gathers it, and recomputation runs it again.
class Network : public torch::nn::Module {
 public:
  // Shapes: -> logits [B] or [B, classes]; two-tower: of each query for each item, [B, B]
  virtual at::Tensor forward(const Samples& in) = 0;
  // Operations of the matrix products of one sample's forward.
  virtual double flops() const = 0;

  std::vector<parallel::Unit> units() const;

  parallel::RunUnit run_unit = parallel::run_directly;
  bool recomputes = false;

 protected:
  // Runs `forward` as child number `child`, in the order of registration.
  at::Tensor run(size_t child, const at::Tensor& x, const parallel::UnitForward& forward) const;
};

// Makes the network with the values of draw_values(), in fp32.
std::shared_ptr<Network> make_network(const RecommendProblem& problem, uint64_t seed);

// DLRM: an MLP maps the dense features to the width of the embeddings, and their interaction with
// the embeddings feeds a second MLP. The interaction of "dlrm" is the dot products of all pairs,
// next to the mapped dense features; that of "dlrm-dcnv2" is a cross network over all of them, as
// in MLPerf.
// Sources: Naumov et al. 2019, arXiv:1906.00091; Wang et al. 2021, arXiv:2008.13535
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

// Wide & deep: the sum of a linear model over the features and an MLP over their embeddings. The
// linear model's weights of ids are tables of the output's width.
// Source: Cheng et al. 2016, arXiv:1606.07792
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

// Two-tower retrieval: one MLP maps a query to a vector and another maps an item; their cosine is
// the score. A query's negatives are the other items of its microbatch.
// Source: Yi et al. 2019, "Sampling-bias-corrected neural modeling for large corpus item
//         recommendations", section 3
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

  // The cosine of each sample's query and item, which orders items in an evaluation.
  // Shapes: -> [B] fp64
  at::Tensor pair_scores(const Samples& in);

  int64_t query_width() const { return query_width_; }  // columns of queries, which are first

 private:
  // Of the samples' queries and items, [B, D] each.
  std::pair<at::Tensor, at::Tensor> vectors(const Samples& in);

  int64_t query_width_;
  double temperature_;
  std::shared_ptr<Mlp> query_, item_;
  double flops_ = 0;
};

}  // namespace trireme::tasks
