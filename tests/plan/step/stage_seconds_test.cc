#include "trireme/plan/step/stage_seconds.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plan/harness.h"
#include "trireme/plan/cost/layer_costs.h"

namespace trireme::plan {
namespace {

constexpr model::ModelPart part_of(int64_t layers) {
  return {.first_layer = 1, .num_layers = layers, .embeds = false, .has_head = false};
}

Workload four_layers() { return mixed(gpt(8, 1024, 16)); }

TEST(StageSeconds, LayersAddUp) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StageSeconds one = stage_seconds(four_layers(), cluster, part_of(1));
  const StageSeconds three = stage_seconds(four_layers(), cluster, part_of(3));
  EXPECT_DOUBLE_EQ(three.forward.total(), 3 * one.forward.total());
  EXPECT_DOUBLE_EQ(three.backward.total(), 3 * one.backward.total());
  EXPECT_DOUBLE_EQ(three.parameters.all, 3 * one.parameters.all);
}

TEST(StageSeconds, RecomputationOfABlockRepeatsItsForward) {
  Workload work = four_layers();
  work.micro_batch = 16;  // whose kernels are longer than their launches
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StageSeconds plain = stage_seconds(work, cluster, part_of(1));
  set_recompute(work, model::Recompute::kFull);
  const StageSeconds again = stage_seconds(work, cluster, part_of(1));
  EXPECT_DOUBLE_EQ(again.forward.total(), plain.forward.total());
  EXPECT_NEAR(again.backward.total() - plain.backward.total(), plain.forward.total(),
              1e-9 * plain.forward.total());
  const BlockWork block = block_work(work, false);
  EXPECT_DOUBLE_EQ(again.repeated_flops, block.product_flops() + block.core.flops());
}

TEST(StageSeconds, FrozenWeightsHaveNoProductsOfTheirOwn) {
  Workload work = four_layers();
  work.micro_batch = 16;  // whose kernels are longer than their launches
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StageSeconds all = stage_seconds(work, cluster, part_of(1));
  work.block = {.trained = 0, .products = 0, .feed_forward_products = 0};
  const StageSeconds none = stage_seconds(work, cluster, part_of(1));
  EXPECT_EQ(none.forward.compute, all.forward.compute);
  EXPECT_LT(none.backward.compute, all.backward.compute);
  EXPECT_GT(none.backward.compute, 0.5 * all.backward.compute);
  work.block = {.trained = 0.5, .products = 0.5, .feed_forward_products = 0.5};
  const StageSeconds half = stage_seconds(work, cluster, part_of(1));
  EXPECT_NEAR(half.backward.compute, (none.backward.compute + all.backward.compute) / 2,
              1e-12 * all.backward.compute);
  EXPECT_EQ(half.parameters.trained, 0.5 * all.parameters.all);
  EXPECT_LT(none.weight_share, all.weight_share);
}

TEST(StageSeconds, BlocksBeforeTheFirstTrainedOneHaveNoBackward) {
  Workload work = four_layers();
  set_recompute(work, model::Recompute::kFull);
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StageSeconds all = stage_seconds(work, cluster, part_of(4));
  auto blocks = std::make_shared<std::vector<PartTraining>>(8);
  std::fill(blocks->begin(), blocks->begin() + 3, PartTraining::frozen());
  work.blocks = blocks;  // the stage has the blocks from 1 on: two frozen ones, then two others
  const StageSeconds half = stage_seconds(work, cluster, part_of(4));
  EXPECT_DOUBLE_EQ(half.forward.compute, all.forward.compute);
  EXPECT_DOUBLE_EQ(half.backward.compute, all.backward.compute / 2);
  EXPECT_DOUBLE_EQ(half.repeated_flops, all.repeated_flops / 2);
  EXPECT_DOUBLE_EQ(half.parameters.trained, all.parameters.all / 2);
  EXPECT_DOUBLE_EQ(half.parameters.kept, all.parameters.all);
}

TEST(StageSeconds, AdaptersAddTwoProductsToTheirLayer) {
  Workload work = four_layers();
  const double alone = block_work(work, false).product_flops(), n = tokens_of(work);
  work.block = {.products = 0,
                .feed_forward_products = 0,
                .adapted = {{.inputs = 1024, .outputs = 1024, .is_of_attention = true},
                            {.inputs = 4096, .outputs = 1024, .splits_inputs = true}},
                .rank = 16};
  EXPECT_DOUBLE_EQ(block_work(work, false).product_flops() - alone,
                   2 * n * 16 * (1024 + 1024 + 4096 + 1024));
  work.axes.tensor = 2;  // each rank has half of a row of A, or of B's rows, and all of the other
  EXPECT_DOUBLE_EQ(block_work(work, false).product_flops() - alone / 2,
                   2 * n * 16 * (1024 + 512 + 2048 + 1024));
}

TEST(StageSeconds, EachAxisHasItsCommunication) {
  const Cluster cluster = cluster_of("a100-80gb", 8, 8);
  const auto with = [&](auto change) {
    Workload work = four_layers();
    change(work);
    return stage_seconds(work, cluster, part_of(2));
  };
  const StageSeconds alone = with([](Workload&) {});
  EXPECT_EQ(alone.forward.total(), alone.forward.compute);
  EXPECT_GT(with([](Workload& w) { w.axes.tensor = 8; }).forward.tensor, 0);
  const auto tensor_with = [&](bool of_all_heads) {
    return with([=](Workload& w) {
      w.axes.tensor = 2;
      w.model.attention.qk_norm = true;
      if (of_all_heads) w.model.attention.qk_norm_over = model::QkNormOver::kAll;
    });
  };
  EXPECT_GT(tensor_with(true).forward.tensor, tensor_with(false).forward.tensor);
  EXPECT_GT(tensor_with(true).backward.tensor, tensor_with(false).backward.tensor);
  EXPECT_GT(with([](Workload& w) { w.axes.context = 4; }).backward.context, 0);
  const StageSeconds zero = with([](Workload& w) {
    w.axes.data = w.axes.shard = 64;
    w.zero = 3;
    hold_gradients(w);
  });
  EXPECT_GT(zero.forward.data, 0);
  EXPECT_GT(zero.backward.data, zero.forward.data);
  const auto backward = [&](int64_t zero, bool rank_first) {
    return with([=](Workload& w) {
             w.axes.data = 64;
             w.axes.shard = zero == 0 ? 1 : 64;
             w.zero = zero;
             w.rank_first = rank_first;
             hold_gradients(w);
           })
        .backward.data;
  };
  // Gathers alone; without ZeRO nothing until the last microbatch.
  EXPECT_LT(backward(3, false), zero.backward.data);
  EXPECT_EQ(backward(0, false), 0);
  EXPECT_GT(backward(0, true), backward(1, true));  // an all-reduce against half of it
  Workload sparse = mixed(sparse_llama());
  sparse.axes.data = sparse.axes.expert = 4;
  EXPECT_GT(stage_seconds(sparse, cluster, part_of(2)).forward.expert, 0);
}

TEST(StageSeconds, OverlapHidesPartOfTheCommunication) {
  Workload work = four_layers();
  work.axes.data = work.axes.shard = 64;
  work.zero = 3;
  const Cluster cluster = cluster_of("a100-80gb", 8, 8);
  const double hidden = stage_seconds(work, cluster, part_of(1)).forward.data;
  work.overlap = false;
  EXPECT_LT(hidden, stage_seconds(work, cluster, part_of(1)).forward.data);
}

TEST(StageSeconds, AttentionIsComposedWhereGptWasTrainedSo) {
  const Cluster gpu = cluster_of("a100-80gb", 1, 8), cpu = cluster_of("cpu", 1, 2);
  Workload work = four_layers();
  EXPECT_FALSE(has_fused_attention(work, gpu));
  EXPECT_TRUE(has_fused_attention(work, cpu));
  work.zero = 3;
  EXPECT_TRUE(has_fused_attention(work, gpu));
  Cluster given = gpu;
  given.attention = AttentionKernel::kComposed;
  EXPECT_FALSE(has_fused_attention(work, given));
}

TEST(StageSeconds, ASoftCapIsComposed) {
  Workload work = four_layers();
  work.model.family = "llama";
  Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const double fused = stage_seconds(work, cluster, part_of(1)).forward.compute;
  cluster.attention = AttentionKernel::kComposed;
  const double composed = stage_seconds(work, cluster, part_of(1)).forward.compute;
  cluster.attention = AttentionKernel::kAuto;
  work.model.attention.attention_softcap = 50;
  EXPECT_TRUE(has_fused_attention(work, cluster));  // and no scores are kept
  EXPECT_DOUBLE_EQ(stage_seconds(work, cluster, part_of(1)).forward.compute, composed);
  EXPECT_GT(composed, fused);
}

TEST(StageSeconds, AHeadHasItsOwnRates) {
  const Workload work = four_layers();
  const Cluster cluster = cluster_of("cpu", 1, 1);
  const model::ModelPart last{.first_layer = 7, .num_layers = 1, .embeds = false, .has_head = true};
  const auto seconds = [&](auto change) {
    Cluster changed = cluster;
    change(changed.device);
    const StageSeconds stage = stage_seconds(work, changed, last);
    return stage.forward.compute + stage.backward.compute;
  };
  const HeadWork head = head_work(work);
  const double both = seconds([](Device&) {});
  const double slow = seconds([](Device& device) { device.bf16_head_share = 0.1; });
  EXPECT_NEAR(slow - both,
              3 * head.logits.flops() * (1 / (0.1 * cluster.device.peak_half)) -
                  3 * product_seconds(cluster.device, head.logits, 2),
              1e-9 * both);
  const double loss = seconds([](Device& device) { device.loss_share = 0.1; });
  EXPECT_NEAR(loss - both,
              head.loss_elements * 4 / cluster.device.memory_rate *
                  (1 / 0.1 - 1 / cluster.device.memory_share),
              1e-9 * both);
}

TEST(StageSeconds, StagesSendOneMicrobatchesActivations) {
  Workload work = four_layers();
  Cluster cluster = cluster_of("a100-80gb", 1, 8);
  EXPECT_EQ(stage_transfer_seconds(work, cluster), 0);
  work.axes.pipeline = 2;
  cluster.device.link_seconds = 0;
  EXPECT_DOUBLE_EQ(stage_transfer_seconds(work, cluster),
                   2048.0 * 1024 * 2 / (cluster.device.link_rate * cluster.device.link_share));
}

}  // namespace
}  // namespace trireme::plan
