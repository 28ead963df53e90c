#include "trireme/train/annotated/annotated_task.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/train/annotated/annotated_run.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/mesh/device_mesh.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const AnnotatedLayout kData2 = {"data 2", 2, {}};
const AnnotatedLayout kTensor2 = {"tensor 2", 2, {{"parallel.tensor", "2"}}};
const AnnotatedLayout kBoth = {"2 x 2", 4, {{"parallel.tensor", "2"}}};
const AnnotatedLayout kSharded = {
    "2 x 2 sharded", 4, {{"parallel.tensor", "2"}, {"parallel.zero", "1"}}};

class AnnotatedTaskTest : public AnnotatedRun {};

TEST_F(AnnotatedTaskTest, TheFirstStepIsThatOfTorchAlone) {
  const RunConfig config = config_at("run", kBoth, {{"train.gradient_clip", "0"}});
  run(config, kBoth.num_ranks);
  at::manual_seed(config.train.seed);
  PointsNet net(5, 0, "");
  net.to(at::kDouble);
  const auto [x, y] = first_batch(config);
  const at::Tensor loss = at::nll_loss(at::log_softmax(net.forward(x), 1), y);
  loss.backward();
  double squares = 0;
  for (const auto& item : net.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    const bool is_counted = gradient.defined() && item.key() != "tied";  // also "again.weight"
    if (is_counted) squares += gradient.square().sum().item<double>();
  }
  const auto found = metrics("run");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_NEAR(found[0]["loss"].get<double>(), loss.item<double>(), 1e-12);
  EXPECT_NEAR(found[0]["grad_norm"].get<double>(), std::sqrt(squares), 1e-12);
}

TEST_F(AnnotatedTaskTest, EveryLayoutHasTheNumbersOfOneRank) {
  run(config("one"), 1);
  const std::vector<AnnotatedLayout> layouts = {
      kData2,
      kTensor2,
      kBoth,
      kSharded,
      {"data 3", 3, {}},
      {"tensor 3", 3, {{"parallel.tensor", "3"}}},
      {"data 4", 4, {}},
      {"tensor 4", 4, {{"parallel.tensor", "4"}}},
      {"ranks first", 4, {{"parallel.tensor", "2"}, {"parallel.gradient_order", "rank-first"}}},
      {"one rank has all", 4, {{"parallel.tensor", "2"}, {"points.flaw", "cuts"}}},
      {"hybrid", 4, {{"parallel.shard", "2"}, {"parallel.zero", "2"}}},
      {"large microbatches", 4, {{"parallel.tensor", "2"}, {"train.micro_batch", "3"}}},
      {"uneven", 4, {{"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}}};
  for (const AnnotatedLayout& layout : layouts) {
    run(config_at(layout.name, layout), layout.num_ranks);
    expect_same(layout.name, "one", 1e-10);
  }
}

TEST_F(AnnotatedTaskTest, ShardedStatesHaveTheBitsOfDataParallelism) {
  for (const char* order : {"microbatch-first", "rank-first"}) {
    const std::vector<Override> ordered = {{"parallel.gradient_order", order}};
    const std::string ddp = concat("ddp ", order);
    run(config_at(ddp, kBoth, ordered), 4);
    for (const char* zero : {"1", "2"}) {
      const std::string name = concat("zero ", zero, order);
      run(config_at(name, kBoth, {ordered[0], {"parallel.zero", zero}}), 4);
      expect_same(name, ddp, 0);
    }
  }
}

TEST_F(AnnotatedTaskTest, DropoutHasTheSameMasksOnEveryLayout) {
  const Override drops = {"points.dropout", "0.4"};
  run(config("plain"), 1);
  run(config("one", {drops}), 1);
  EXPECT_NE(metrics("one")[0]["loss"], metrics("plain")[0]["loss"]);
  for (const AnnotatedLayout& layout : {kData2, kTensor2, kBoth, kSharded}) {
    run(config_at(layout.name, layout, {drops}), layout.num_ranks);
    expect_same(layout.name, "one", 1e-10);
  }
}

TEST_F(AnnotatedTaskTest, ResumesAtItsLayoutWithTheSameBits) {
  for (const AnnotatedLayout& layout : {kTensor2, kBoth, kSharded}) {
    const Override drops = {"points.dropout", "0.4"};
    const std::string whole = layout.name + " whole", cut = layout.name + " cut";
    run(config_at(whole, layout, {drops}), layout.num_ranks);
    EXPECT_EQ(run(config_at(cut, layout, {drops}), layout.num_ranks, /*stop_after=*/3),
              Outcome::kStopped);
    EXPECT_EQ(run(config_at(cut, layout, {drops}), layout.num_ranks), Outcome::kFinished);
    expect_same(cut, whole, 0);
  }
}

TEST_F(AnnotatedTaskTest, ResumesAtAnyOtherLayout) {
  const AnnotatedLayout one = {"one", 1, {}};
  run(config("whole"), 1);
  for (const AnnotatedLayout& from : {one, kTensor2, kBoth, kSharded}) {
    for (const AnnotatedLayout& to : {one, kTensor2, kBoth, kSharded}) {
      if (from.name == to.name) continue;
      const std::string name = from.name + " to " + to.name;
      EXPECT_EQ(run(config_at(name, from), from.num_ranks, /*stop_after=*/3), Outcome::kStopped);
      EXPECT_EQ(run(config_at(name, to), to.num_ranks), Outcome::kFinished);
      expect_same(name, "whole", 1e-10);
    }
  }
}

TEST_F(AnnotatedTaskTest, OptimizersAndFrozenParametersAreThoseOfAnyTask) {
  const std::vector<std::vector<Override>> choices = {
      {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0.9"}},
      {{"optimizer.name", "lion"}},
      {{"train.freeze", "up.*,head.bias"}}};
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string one = concat("one", i), four = concat("four", i);
    run(config(one, choices[i]), 1);
    run(config_at(four, kSharded, choices[i]), 4);
    expect_same(four, one, 1e-10);
  }
}

TEST_F(AnnotatedTaskTest, ARankHoldsItsBlocksUnderTheWholeModelsNames) {
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const RunConfig config = this->config("run");
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    model::ModelAxes axes;
    axes.tensor.group = &mesh.group("tensor");
    const auto stage = config.task->model().make_stage({config, axes, {}, 0});
    const auto plan = config.task->model().parameters({.tensor = 2});
    const auto found = stage->module().named_parameters();
    ASSERT_EQ(found.size(), plan.size());
    for (size_t i = 0; i < plan.size(); ++i) {
      EXPECT_EQ(found[i].key(), plan[i].name);
      const at::Tensor& block = found[i].value();
      EXPECT_EQ(block.sizes(), plan[i].layout.local_box(world.rank()).size) << plan[i].name;
      EXPECT_EQ(block.scalar_type(), at::kDouble);
    }
    EXPECT_EQ(found["up.weight"].sizes(), (std::vector<int64_t>{world.rank() == 0 ? 6 : 5, 5}));
    EXPECT_EQ(stage->module().named_buffers().size(), 1u);
  });
}

TEST_F(AnnotatedTaskTest, WhatItsModuleCannotDoIsRefusedBeforeTraining) {
  const auto flaw = [&](const char* name) {
    return refusal({{"points.flaw", name}, {"parallel.tensor", "2"}}, 2);
  };
  EXPECT_THAT(flaw("pattern"), AllOf(HasSubstr("\"head.wieght\" matches no parameter"),
                                     HasSubstr("the nearest name is \"head.weight\"")));
  EXPECT_THAT(flaw("twice"), HasSubstr("two patterns match the parameter up.bias"));
  EXPECT_THAT(flaw("dimension"), HasSubstr("is split in dimension 1 on \"tensor\""));
  EXPECT_THAT(flaw("sum"), HasSubstr("is to be a partial sum"));
  EXPECT_THAT(flaw("data"), AllOf(HasSubstr("parameter \"head.bias\" is on the axis \"data\""),
                                  HasSubstr("parallel.zero")));
  EXPECT_THAT(flaw("axis"), HasSubstr("is on the axis \"context\""));
  EXPECT_THAT(flaw("no axis"), HasSubstr("mesh axis \"tenser\" is unknown"));
  EXPECT_THAT(flaw("buffer"), HasSubstr("buffer \"shift\" splits it"));
  EXPECT_THAT(flaw("input"), HasSubstr("input \"x\" is not split(0, \"data\")"));
  EXPECT_THAT(flaw("inputs"), HasSubstr("forward() of PointsNet does not take so many"));
  EXPECT_THAT(flaw("outputs"), HasSubstr("returns one tensor"));
  EXPECT_THAT(flaw("norm"), HasSubstr("\"batch_norm\" is a batch norm"));
  EXPECT_THAT(refusal({{"parallel.pipeline", "2"}}, 2), HasSubstr("the model has 1 layers"));
  EXPECT_THAT(refusal({{"parallel.context", "2"}}, 2), HasSubstr("parallel.context is 2"));
  EXPECT_THAT(refusal({{"parallel.expert", "2"}}, 2), HasSubstr("parallel.expert is 2"));
  EXPECT_THAT(refusal({{"train.recompute", "selective"}}),
              HasSubstr("train.recompute is \"selective\""));
  EXPECT_THAT(refusal({{"train.recompute", "full"}, {"offload.activations", "host"}}),
              HasSubstr("offload.activations is \"host\""));
  EXPECT_THAT(refusal({{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}, 2),
              HasSubstr("parallel.sequence_parallel is true"));
  EXPECT_THAT(refusal({{"parallel.tensor", "2"}, {"optimizer.name", "muon"}}, 2),
              HasSubstr("they work on whole matrices"));
}

}  // namespace
}  // namespace trireme::train
