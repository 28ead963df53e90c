#include "trireme/tasks/recommend/recommend_network.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

RecommendProblem problem() {
  RecommendProblem problem;
  problem.config.model = {
      .family = RecommendFamily::kTwoTower, .width = 4, .top = "6", .temperature = 0.5};
  problem.schema.tables = {
      {.name = "q"}, {.name = "r"}, {.name = "i", .side = dataset::TableSide::kItem}};
  return problem;
}

TEST(TwoTower, HasCosinesOfQueriesAndItems) {
  TwoTower model(problem());
  model.to(at::kDouble);
  draw_values(model, 1);
  const auto p = model.named_parameters();
  const at::Tensor embedded = at::randn({3, 12}, at::kDouble);
  const auto tower = [&](const std::string& name, at::Tensor x) {
    x = at::mm(x, p[name + ".layers.0.weight"].t()) + p[name + ".layers.0.bias"];
    x = at::mm(x.clamp_min(0), p[name + ".layers.1.weight"].t()) + p[name + ".layers.1.bias"];
    return x / x.square().sum(1, /*keepdim=*/true).sqrt();
  };
  at::Tensor expected = at::mm(tower("query", embedded.narrow(1, 0, 8)),
                               tower("item", embedded.narrow(1, 8, 4)).t()) /
                        0.5;
  // The samples 0 and 2 have the same item, which is no negative of itself.
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  expected = expected.detach().clone();
  expected[0][2] = kNever;
  expected[2][0] = kNever;
  const at::Tensor found =
      model.forward({.dense_BF = {}, .embedded_BW = embedded, .item_B = at::tensor({5L, 1L, 5L})})
          .detach();
  harness::assert_close(found.clamp_min(-1e3), expected.clamp_min(-1e3), 1e-13, 1e-14, "logits");
}

TEST(TwoTower, HasFiniteGradientsForAVectorOfZeros) {
  TwoTower model(problem());
  const at::Tensor embedded = at::zeros({2, 12}).requires_grad_();
  model.forward({.dense_BF = {}, .embedded_BW = embedded, .item_B = at::tensor({0L, 1L})})
      .diagonal()
      .sum()
      .backward();
  EXPECT_TRUE(embedded.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace trireme::tasks::inline internal
