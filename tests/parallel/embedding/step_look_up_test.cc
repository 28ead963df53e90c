#include "trireme/parallel/embedding/step_look_up.h"

#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kSamples = 23;

// Some microbatches have no sample, and some ranks have none.
TEST(StepLookUp, HasTheBitsOfOneLookUpForAnyMicrobatches) {
  Draw draw(31);
  for (const int world : {1, 2, 3, 4}) {
    for (const int num_microbatches : {1, 2, 5}) {
      const EmbeddingOptions options{.dtype = at::kDouble, .update = UpdateTime::kOnStep};
      const std::vector<TableConfig> tables = place(draw, make_tables(), world, true);
      const OneRun one = run_on_one(draw, make_tables(), {.dtype = at::kDouble}, kSamples, 1);
      const std::vector<int64_t> cuts = draw_cuts(draw, kSamples, world * num_microbatches);
      run_ranks(world, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options);
        const auto T = std::ssize(tables);
        std::vector<JaggedIds> microbatches;
        std::vector<std::pair<int64_t, int64_t>> places;
        for (int m = 0; m < num_microbatches; ++m) {
          const auto at = static_cast<size_t>(group.rank() * num_microbatches + m);
          places.emplace_back(cuts[at], cuts[at + 1]);
          microbatches.push_back(samples_of(one.batches[0], T, cuts[at], cuts[at + 1]));
        }
        StepLookUp step(many, microbatches);
        for (size_t m = 0; m < places.size(); ++m) {
          const auto [begin, end] = places[m];
          const Embeddings found = step.at(m);
          expect_same_bits(found, samples_of(one.outputs[0], one.batches[0], tables, begin, end));
          run_backward(found, samples_of(one.gradients[0], one.batches[0], tables, begin, end));
        }
        step.backward();
        many.step();
        expect_state(many, one.state);
      });
    }
  }
}

TEST(StepLookUp, GivesTheWeightsOfEachMicrobatchTheirGradients) {
  Draw draw(32);
  const EmbeddingOptions options{.dtype = at::kDouble, .update = UpdateTime::kOnStep};
  const std::vector<TableConfig> tables = make_tables();
  const auto T = std::ssize(tables);
  JaggedIds all = draw_ids(draw, tables, kSamples, at::kDouble);
  all.weights.requires_grad_();
  EmbeddingTables one(tables, nullptr, options);
  const Embeddings whole = one.look_up(all);
  const Embeddings gradients = gradients_of(whole, 3);
  run_backward(whole, gradients);
  JaggedIds expected = all;
  expected.weights = all.weights.grad();
  all.weights = all.weights.detach();
  const std::vector<int64_t> cuts = draw_cuts(draw, kSamples, 3);
  std::vector<JaggedIds> microbatches;
  for (size_t m = 0; m < 3; ++m) {
    microbatches.push_back(samples_of(all, T, cuts[m], cuts[m + 1]));
    microbatches[m].weights.requires_grad_();
  }
  StepLookUp step(one, microbatches);
  for (size_t m = 0; m < 3; ++m) {
    run_backward(step.at(m), samples_of(gradients, all, tables, cuts[m], cuts[m + 1]));
    EXPECT_FALSE(microbatches[m].weights.grad().defined());
  }
  step.backward();
  for (size_t m = 0; m < 3; ++m) {
    assert_same_bits(microbatches[m].weights.grad(),
                     samples_of(expected, T, cuts[m], cuts[m + 1]).weights, "weights");
  }
}

TEST(StepLookUp, TakesAMissingGradientAsZeros) {
  const std::vector<TableConfig> tables{{.name = "t", .rows = 3, .width = 2}};
  EmbeddingTables one(tables, nullptr, {.update = UpdateTime::kOnStep});
  const JaggedIds ids = jagged_ids(at::tensor({0L, 2L}), at::tensor({1L, 1L}).view({1, 2}));
  StepLookUp step(one, {ids, ids});
  EXPECT_TRUE(step.at(0).pooled_BW.requires_grad());
  step.at(1).pooled_BW.sum().backward();
  step.backward();
  assert_same_bits(one.gradients()[0].sums, at::ones({2, 2}), "gradient");
  one.discard_gradients();
  EXPECT_TRUE(one.gradients().empty());
}

// Nor do weights have a list where a rank has none.
TEST(StepLookUp, ARankMayHaveNoMicrobatchOfWeightedTables) {
  const EmbeddingOptions options{.update = UpdateTime::kOnStep};
  const std::vector<TableConfig> tables{{.name = "t", .rows = 3, .width = 2, .is_weighted = true}};
  run_ranks(2, [&](comm::Communicator& group) {
    EmbeddingTables both(tables, &group, options);
    std::vector<JaggedIds> microbatches;
    if (group.rank() == 0) {
      microbatches.push_back(
          jagged_ids(at::tensor({2L}), at::tensor({1L}).view({1, 1}), at::full({1}, 0.5F)));
    }
    StepLookUp step(both, microbatches);
    if (group.rank() == 0) {
      step.at(0).pooled_BW.sum().backward();
    } else {
      EXPECT_THROW(step.at(0), std::out_of_range);
    }
    step.backward();
    assert_same_bits(both.gradients()[0].sums, at::full({1, 2}, 0.5F), "gradient");
  });
}

TEST(StepLookUp, ARankWithoutColumnsAddsBackwardsToo) {
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kRowWiseAdaGrad},
                                 .update = UpdateTime::kOnStep};
  run_ranks(3, [&](comm::Communicator& group) {
    const std::vector<TableConfig> tables{
        {.name = "t", .rows = 5, .width = 2, .placement = mesh::Placement::sharded(1)}};
    EmbeddingTables many(tables, &group, options);
    for (const int64_t id : {1, 1, 4}) {
      many.look_up(jagged_ids(at::tensor({id}, at::kLong), at::tensor({1L}).view({1, 1})))
          .pooled_BW.sum()
          .backward();
    }
    EXPECT_EQ(many.gradients()[0].rows.numel(), 2);
    many.gradient_squares();
    many.step();
    const at::Tensor sums = many.state()[1].local;
    EXPECT_EQ(sums[1].item<float>(), 36);
    EXPECT_EQ(sums[4].item<float>(), 9);
  });
}

TEST(StepLookUp, HasNoGraphWithoutGradients) {
  const std::vector<TableConfig> tables{{.name = "t", .rows = 3, .width = 2}};
  EmbeddingTables one(tables, nullptr);
  const at::NoGradGuard guard;
  StepLookUp step(one, {jagged_ids(at::tensor({1L}), at::tensor({1L}).view({1, 1}))});
  EXPECT_FALSE(step.at(0).pooled_BW.requires_grad());
}

TEST(StepLookUp, RefusesMicrobatchesOfOtherTables) {
  const JaggedIds two = jagged_ids(at::tensor({0L, 2L}), at::tensor({1L, 1L}).view({2, 1}));
  EXPECT_THROW(join_batches({two, two}, 1), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
