// A recommendation model without its tables: computes logits from dense features and embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/parallel/data/unit.h"
#include "trireme/tasks/recommend/recommend_problem.h"

namespace trireme::tasks::inline internal {

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

}  // namespace trireme::tasks::inline internal
