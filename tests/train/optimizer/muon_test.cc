#include "trireme/train/optimizer/update_rules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/train/optimizer/runs.h"

namespace trireme::train {
namespace {

OptimizerConfig config_of(bool nesterov) {
  return {.name = "muon", .learning_rate = 1e-2, .momentum = 0.95, .nesterov = nesterov};
}

// Steps are at most 1.2 * 0.2 sqrt(70) = 2, AdamW's 3. Roundings: with singular values x up to 1.2
// an iteration's terms sum to a x + |b| x^3 + c x^5 < 17.4, each rounded in sums of at most 70
// products and a few more: 17.4 * 76. Later iterations stretch an error by at most |p'(x)| < 3.9
// each, over five: (3.9^5 - 1) / 2.9 = 310. The momentum's 20 roundings are stretched by 3.9^5.
constexpr StepError kError{.size = 3, .roundings = 17.4 * 76 * 310 + 20 * 902};

TEST(MuonRule, AgreesWithTorch) {
  for (const bool nesterov : {true, false}) compare_with_reference(config_of(nesterov), kError);
}

TEST(MuonRule, MatricesOfHiddenLayersHaveAMomentumAndAllElseAdamWsStates) {
  const MuonRule rule({.adamw_patterns = {"*embed*"}});
  for (const parallel::Shard& shard : make_shards(at::kFloat)) {
    const bool is_hidden = shard.layout.shape().size() == 2 && shard.name != "embed.weight";
    const std::vector<StateSpec> states = rule.state_of(shard);
    ASSERT_EQ(states.size(), is_hidden ? 1u : 2u) << shard.name;
    EXPECT_EQ(states[0].name, is_hidden ? "momentum_buffer" : "exp_avg") << shard.name;
  }
}

TEST(Orthogonalize, KeepsSingularVectorsAndBringsSingularValuesNearOne) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair(20, 50), std::pair(50, 20), std::pair(16, 16)}) {
    const auto [u, s, vh] = at::linalg_svd(at::randn({rows, columns}, at::kDouble), false);
    // Singular values from 0.1 to 1, whose norm is at most 4.5: after division at least 0.02.
    const at::Tensor values = at::linspace(0.1, 1.0, s.numel(), at::kDouble);
    const at::Tensor result = orthogonalize(at::mm(u * values, vh));
    const at::Tensor inner = at::mm(at::mm(u.t(), result), vh.t());
    const at::Tensor diagonal = inner.diagonal();
    EXPECT_LT((inner - diagonal.diag()).abs().max().item<double>(), 1e-10);
    EXPECT_GT(diagonal.min().item<double>(), 0.65);
    EXPECT_LT(diagonal.max().item<double>(), 1.25);
  }
}

TEST(Orthogonalize, AMatrixOfZerosStaysZero) {
  EXPECT_EQ(orthogonalize(at::zeros({3, 4})).abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace trireme::train
