#include "trireme/plan/cost/layer_costs.h"

#include <gtest/gtest.h>

#include "tests/plan/harness.h"

namespace trireme::plan {
namespace {

// Forward and backward of all layers, by their products.
double flops_of(const Workload& work) {
  const double sparse = number(model::num_sparse_blocks(work.model));
  double forward = head_work(work).logits.flops() + head_work(work).dense.flops();
  const auto add = [&](bool is_sparse, double count) {
    if (count == 0) return;
    const BlockWork block = block_work(work, is_sparse);
    forward += count * (block.product_flops() + block.core.flops());
  };
  add(false, number(work.model.layers) - sparse);
  add(true, sparse);
  return 3 * forward;
}

TEST(Products, AddUpToTheModelsOperations) {
  model::ModelConfig bert = gpt(3, 512, 8);
  bert.family = "bert";
  for (const model::ModelConfig& config : {gpt(3, 512, 8), sparse_llama(), bert}) {
    Workload work = mixed(config);
    work.micro_batch = 2;
    EXPECT_DOUBLE_EQ(flops_of(work), work.counts().flops_per_token * tokens_of(work))
        << config.family;
  }
}

TEST(Products, TheAxesDivideThem) {
  Workload work = mixed(sparse_llama());
  work.micro_batch = 8;
  const double whole = flops_of(work);
  work.axes.context = 2;
  EXPECT_DOUBLE_EQ(2 * flops_of(work), whole);
  work.axes.tensor = 4;
  // Each rank has the whole router.
  const double routers = 3 * 3 * 2 * tokens_of(work) * 8 * 256;
  EXPECT_DOUBLE_EQ(8 * (flops_of(work) - routers), whole - 2 * routers);
}

TEST(Products, ExpertRanksHaveFewerExpertsAndMoreRowsOfEach) {
  Workload work = mixed(sparse_llama());
  work.axes.data = 4;
  const BlockWork one = block_work(work, true);
  work.axes.expert = 4;
  const BlockWork four = block_work(work, true);
  EXPECT_DOUBLE_EQ(four.product_flops(), one.product_flops());
  EXPECT_DOUBLE_EQ(4 * four.expert_parameters, one.expert_parameters);
  EXPECT_DOUBLE_EQ(four.feed_forward[1].rows, 4 * one.feed_forward[1].rows);
  EXPECT_DOUBLE_EQ(four.feed_forward[1].count, one.feed_forward[1].count / 4);
}

TEST(Products, TheBusiestExpertRankHasMoreRowsOnly) {
  Workload work = mixed(sparse_llama());
  const double alone = block_work(work, true).product_flops();
  EXPECT_DOUBLE_EQ(block_work(work, true, 3).product_flops(), alone);  // one rank has all experts
  work.axes.data = work.axes.expert = 4;
  const BlockWork even = block_work(work, true), skewed = block_work(work, true, 3);
  EXPECT_DOUBLE_EQ(skewed.feed_forward[1].rows, 3 * even.feed_forward[1].rows);
  EXPECT_DOUBLE_EQ(skewed.dispatched_rows, 3 * even.dispatched_rows);
  EXPECT_DOUBLE_EQ(skewed.feed_forward[0].rows, even.feed_forward[0].rows);  // the router
  EXPECT_DOUBLE_EQ(skewed.expert_parameters, even.expert_parameters);
}

TEST(Products, RanksThatShareKvHeadsComputeThemTwice) {
  Workload work = mixed(sparse_llama());  // 4 kv heads of 32
  work.axes.tensor = 8;
  EXPECT_DOUBLE_EQ(block_work(work, false).attention[0].columns, 32 + 2 * 32);
}

}  // namespace
}  // namespace trireme::plan
