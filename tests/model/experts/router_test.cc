#include "trireme/model/experts/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "trireme/model/layers/batch_maker.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {
namespace {

using namespace harness;

constexpr int64_t kWidth = 6, kExperts = 4, kSamples = 2, kTokens = 10;

ModelConfig router_config() {
  return {.width = kWidth,
          .sequence_length = kTokens,
          .sparse = {.experts = kExperts, .experts_per_token = 2, .balance_loss = 0}};
}

class RouterTest : public testing::Test {
 protected:
  Router make(const ModelAxes& axes = {}) const {
    Router router(config_, axes, at::kDouble, 0);
    const at::NoGradGuard no_grad;
    router.weight.copy_(values({kExperts, kWidth}, 0.9));
    return router;
  }
  TokenBatch batch(const ModelAxes& axes = {}, bool trains = true) const {
    std::optional<TrainingPlace> place;
    if (trains) place = TrainingPlace{.step = 3, .first_sample = 4, .num_samples = 2 * kSamples};
    return BatchMaker(config_, axes, parallel::SequenceOrder::kZigZag, 11)
        .make(kSamples, kTokens, {}, at::kCPU, place);
  }
  std::vector<double> table() const {
    return std::vector<double>(static_cast<size_t>(num_routing_counts(kExperts)));
  }

  ModelConfig config_ = router_config();
  at::Tensor x_ = values({kSamples * kTokens, kWidth}, 0.37);
};

TEST_F(RouterTest, CountsWhatItHasChosenOnce) {
  config_.sparse.capacity_factor = 1;
  config_.sparse.router_z_loss = 1e-3;
  Router router = make();
  at::Tensor weights;
  // Repeated in backward, and not counted then.
  const at::Tensor x = x_.clone().requires_grad_();
  weights = recompute_if(
      true,
      [&](const std::vector<at::Tensor>& in) { return router.forward(in[0], batch()).weights_SK; },
      {x});
  weights.sum().backward();
  router.forward(x_, batch({}, /*trains=*/false));  // nor is an evaluation
  std::vector<double> counted = table();
  router.take_counts(counted);
  const RoutingCounts counts = routing_counts(counted);
  EXPECT_EQ(counts.tokens, kSamples * kTokens);
  const at::Tensor logits = at::linear(x_, router.weight);
  const at::Tensor scores = logits.softmax(-1);
  const at::Tensor chosen =
      std::get<1>(at::sort(scores, /*stable=*/true, -1, /*descending=*/true)).narrow(1, 0, 2);
  double dropped = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    const at::Tensor of_sequence = chosen.reshape({kSamples, -1}).eq(e).sum(1);
    EXPECT_EQ(counts.assignments[static_cast<size_t>(e)], of_sequence.sum().item<double>());
    dropped += (of_sequence - kTokens * 2 / kExperts).clamp_min(0).sum().item<double>();
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(counts.dropped, dropped);
  EXPECT_NEAR(counts.entropy, -(scores * scores.log()).sum().item<double>(), 1e-12);
  EXPECT_NEAR(counts.z_loss, logits.logsumexp(-1).square().sum().item<double>(), 1e-12);
  std::vector<double> again = table();
  router.take_counts(again);
  EXPECT_EQ(again, table());
}

TEST_F(RouterTest, BiasesMoveAgainstTheLoad) {
  config_.sparse.router_bias_rate = 0.25;
  Router router = make();
  std::vector<double> counts = table();
  counts[0] = 10, counts[1] = 5, counts[3] = 5;
  router.use_counts(counts);
  assert_same_bits(router.e_score_correction_bias, at::tensor({-0.25, 0.0, 0.25, 0.0}, at::kFloat),
                   "biases");
  // They decide the choice, and nothing else.
  router.e_score_correction_bias.copy_(at::tensor({0, 5, 0, 4}, at::kFloat));
  const ChosenExperts choice = router.forward(x_, batch());
  for (int64_t s = 0; s < kSamples * kTokens; ++s) {
    EXPECT_EQ(choice.experts_SK[s][0].item<int64_t>(), 1);
    EXPECT_EQ(choice.experts_SK[s][1].item<int64_t>(), 3);
  }
  const at::Tensor scores = at::linear(x_, router.weight).softmax(-1).gather(1, choice.experts_SK);
  assert_close(choice.weights_SK.detach(), (scores / scores.sum(1, true)).detach(), 1e-13, 0,
               "weights");
}

TEST_F(RouterTest, BiasesOfRateZeroAreThereAndStay) {
  config_.sparse.router_bias = true;
  Router router = make();
  router.e_score_correction_bias.copy_(at::tensor({0, 5, 0, 4}, at::kFloat));
  std::vector<double> counts = table();
  counts[0] = 10, counts[1] = 5, counts[3] = 5;
  router.use_counts(counts);
  assert_same_bits(router.e_score_correction_bias, at::tensor({0, 5, 0, 4}, at::kFloat), "biases");
  EXPECT_EQ(router.forward(x_, batch()).experts_SK[0][0].item<int64_t>(), 1);
}

// d/d logits of E/(k N) * sum over e of f_e * sum over t of share_te, f from the step before.
TEST_F(RouterTest, BalanceOverTheBatchUsesTheStepBefore) {
  config_.sparse.balance_loss = 0.5;
  config_.sparse.balance_over = BalanceOver::kBatch;
  Router router = make();
  const auto gradient = [&] {
    router.weight.mutable_grad().reset();
    const ChosenExperts choice = router.forward(x_, batch());
    (choice.weights_SK.sum() * 0).backward();
    return router.weight.grad().clone();
  };
  EXPECT_LT(gradient().abs().max().item<double>(), 1e-16);  // shares of any token sum to 1
  std::vector<double> counts = table();
  counts[0] = 3, counts[1] = 1, counts[2] = 4;
  router.use_counts(counts);
  const at::Tensor weight = values({kExperts, kWidth}, 0.9).requires_grad_();
  const at::Tensor f = at::tensor({3.0, 1.0, 4.0, 0.0}, at::kDouble) / 8 * 2;
  const double tokens = 2 * kSamples * kTokens;
  ((at::linear(x_, weight).softmax(-1) * f).sum() * (0.5 * kExperts / (2 * tokens))).backward();
  assert_close(gradient(), weight.grad(), 1e-13, 1e-15, "gradient");
}

TEST_F(RouterTest, JitterIsDrawnForEachElementOfTheInput) {
  config_.sparse.router_jitter = 0.1;
  Router router = make();
  const auto weights = [&](const TokenBatch& batch) {
    return router.forward(x_, batch).weights_SK.detach();
  };
  const at::Tensor evaluated = weights(batch({}, false));
  EXPECT_GT((weights(batch()) - evaluated).abs().max().item<double>(), 1e-4);
  assert_same_bits(weights(batch()), weights(batch()), "weights");
  TokenBatch later = batch();
  later.training->step = 4;
  later.jitter = BatchMaker(config_, {}, parallel::SequenceOrder::kZigZag, 11)
                     .make(kSamples, kTokens, {}, at::kCPU, later.training)
                     .jitter;
  EXPECT_GT((weights(later) - weights(batch())).abs().max().item<double>(), 1e-4);
}

// Jitter, capacity, and balance of a sequence that ranks share are those of the whole one.
TEST_F(RouterTest, AContextAxisChoosesAndDropsTheSame) {
  config_.sparse.router_jitter = 0.2;
  config_.sparse.capacity_factor = 0.8;
  for (const DropBy by : {DropBy::kPosition, DropBy::kProbability}) {
    config_.sparse.drop_by = by;
    const at::Tensor expected = make().forward(x_, batch()).experts_SK.view({kSamples, kTokens, 2});
    ASSERT_GT(expected.lt(0).sum().item<int64_t>(), 0);
    for (const int world : {1, 2, 3, 4}) {
      run_ranks(world, [&](comm::Communicator& group) {
        const ModelAxes axes{.context = &group};
        const TokenBatch own = batch(axes);
        const at::Tensor x = own.context->local(x_.view({kSamples, kTokens, kWidth}), 1);
        const ChosenExperts choice = make(axes).forward(x.reshape({-1, kWidth}), own);
        assert_same_bits(choice.experts_SK, own.context->local(expected, 1).reshape({-1, 2}),
                         "experts");
      });
    }
  }
}

}  // namespace
}  // namespace trireme::model
