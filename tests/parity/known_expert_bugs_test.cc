// Bugs that other systems have had with experts, rebuilt from their descriptions.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

using KnownExpertBugs = LayoutsTest;

std::vector<Override> with_experts(std::vector<Override> overrides) {
  for (const auto& [key, value] : {std::pair("experts", "4"),
                                   {"expert_width", "12"},
                                   {"experts_per_token", "2"},
                                   {"balance_loss", "0.1"}}) {
    overrides.emplace_back(std::string("model.") + key, value);
  }
  return overrides;
}

// pytorch#160285: with two ranks that share the experts, their gradients came out twice as large.
TEST_F(KnownExpertBugs, GradientsAreNotDoubledByTwoExpertRanks) {
  const RunConfig config = config_of(with_experts({{"parallel.expert", "2"}}));
  const StepOutcome actual = run(config, 2), expected = run(on_one_rank(config), 1);
  for (const auto& [name, gradient] : expected.gradients) {
    const double size = gradient.norm().item<double>();
    EXPECT_NEAR(actual.gradients.at(name).norm().item<double>(), size, 1e-10 * size) << name;
  }
}

// Megatron-LM#6470: tensor 2 x expert 2 reported sqrt(2) for a norm of sqrt(3); #5916: a norm that
// left experts out; DeepSpeed#8475: the norms of ranks with other experts averaged, 7.24 for 10.95.
// With a gradient of 1 everywhere the square of the norm is the number of parameters, and with
// e + 1 for expert e it is a sum that no average and no duplicate can give.
TEST_F(KnownExpertBugs, EveryParameterCountsOnceInTheNorm) {
  const std::pair<std::vector<Override>, int> layouts[] = {
      {{{"parallel.expert", "2"}}, 2},
      {{{"parallel.expert", "2"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.tensor", "2"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}},
       4},
      {{{"parallel.expert", "2"}, {"parallel.zero", "1"}}, 4},
      {{{"parallel.expert", "4"}, {"parallel.zero", "3"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.pipeline", "2"}}, 4}};
  for (const auto& [overrides, num_ranks] : layouts) {
    SCOPED_TRACE(concat(num_ranks, " ranks: ", describe(overrides)));
    RunConfig config = config_of(with_experts(overrides));
    resolve(config, num_ranks);
    double expected = 0;
    for (const auto& parameter : config.task->model().parameters({})) {
      const std::vector<int64_t> shape = parameter.layout.whole_shape();
      const auto size = static_cast<double>(c10::multiply_integers(shape));
      const bool is_expert = parameter.name.find(".experts.") != std::string::npos;
      expected += is_expert ? size / 4 * (1 + 4 + 9 + 16) : size;
    }
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
      ParallelModel model(config, mesh, nullptr);
      const auto batches = batches_of(
          config, mesh.coordinate("data") * mesh.size("shard") + mesh.coordinate("shard"));
      model.begin_step(batches);
      model.forward_backward(batches, 1.0);
      for (const parallel::Shard& shard : model.shards()) {
        if (shard.name.find(".experts.") == std::string::npos) {
          shard.gradient.fill_(1);
          continue;
        }
        const at::Tensor index = at::arange(1, 5, at::kDouble).view({4, 1, 1});
        const at::Tensor whole = index.expand(shard.layout.whole_shape()).contiguous();
        shard.gradient.copy_(
            view_box(whole, shard.layout.whole_box(shard.rank)).view_as(shard.gradient));
      }
      EXPECT_DOUBLE_EQ(gradient_norm(model.gradient_squares()), std::sqrt(expected));
    });
  }
}

// Megatron-LM#1628: experts divided by the tensor axis alone had other gradients, and another loss
// curve, than experts divided by the expert axis.
TEST_F(KnownExpertBugs, ExpertsDividedByEitherAxisHaveTheSameGradients) {
  const RunConfig by_tensor = config_of(with_experts({{"parallel.tensor", "4"}}));
  const RunConfig by_expert = config_of(with_experts({{"parallel.expert", "4"}}));
  expect_close(run(by_tensor, 4), run(by_expert, 4), 1e-10);
}

// transformers#48237: a rank whose experts got no token hung all others. torchtitan#3600: equal
// scores chose other experts in other layouts. A router of zeros scores all experts alike, so every
// token goes to experts 0 and 1, and the ranks of 2 and 3 get none.
TEST_F(KnownExpertBugs, RanksWithoutATokenTakePartAndTiesGoToTheLowestExperts) {
  const auto zero_routers = [](ParallelModel& model) {
    for (const parallel::Shard& shard : model.shards()) {
      if (shard.name.ends_with(".mlp.gate.weight")) shard.weights.zero_();
    }
    model.end_step();
  };
  for (const auto& [expert, zero] : {std::pair("2", "0"), {"4", "0"}, {"4", "1"}, {"4", "3"}}) {
    const RunConfig config =
        config_of(with_experts({{"parallel.expert", expert}, {"parallel.zero", zero}}));
    const StepOutcome actual = run(config, 4, zero_routers);
    expect_close(actual, run(on_one_rank(config), 1, zero_routers), 1e-10);
    const auto row = model::row_of_block(std::span<const double>(actual.counts), 0, 4);
    const double tokens = 8.0 * 13;  // of the step, see config_of()
    EXPECT_EQ(std::vector<double>(row.begin(), row.begin() + 4),
              (std::vector<double>{tokens, tokens, 0, 0}));
  }
}

}  // namespace
}  // namespace trireme::train
