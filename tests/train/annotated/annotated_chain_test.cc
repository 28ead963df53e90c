// Annotated modules in a chain: ZeRO-3, recomputation and pipelines.
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/train/annotated/annotated_run.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/annotated/annotated_net.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const AnnotatedLayout kZero3 = {"zero 3", 2, {{"parallel.zero", "3"}}};
const AnnotatedLayout kTensorZero3 = {
    "tensor 2 zero 3", 4, {{"parallel.tensor", "2"}, {"parallel.zero", "3"}}};
const AnnotatedLayout kStages = {
    "tensor 2 pipeline 2", 4, {{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}}};
const AnnotatedLayout kAll = {
    "all", 8, {{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}, {"parallel.zero", "2"}}};

class AnnotatedChainTest : public AnnotatedRun {
 protected:
  RunConfig chain(const std::string& run, const AnnotatedLayout& layout,
                  std::vector<Override> more = {}) const {
    more.emplace_back("points.chain", "true");
    return config_at(run, layout, more);
  }
  const AnnotatedLayout one_ = {"one", 1, {}};
};

TEST_F(AnnotatedChainTest, TheFirstStepIsThatOfTorchAlone) {
  const RunConfig config = chain("run", kStages, {{"train.gradient_clip", "0"}});
  run(config, kStages.num_ranks);
  at::manual_seed(config.train.seed);
  const AnnotatedNet net = points_chain(5, 0, "");
  net.module().to(at::kDouble);
  const auto [x, y] = first_batch(config);
  at::Tensor output = x;
  for (const AnnotatedNet::Link& link : net.links()) output = link.forward({&output, 1});
  const at::Tensor loss = at::nll_loss(at::log_softmax(output, 1), y);
  loss.backward();
  double squares = 0;
  for (const auto& item : net.module().named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    if (gradient.defined() && item.key() != "tied.tied")  // also "tied.again.weight"
      squares += gradient.square().sum().item<double>();
  }
  const auto found = metrics("run");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_NEAR(found[0]["loss"].get<double>(), loss.item<double>(), 1e-12);
  EXPECT_NEAR(found[0]["grad_norm"].get<double>(), std::sqrt(squares), 1e-12);
}

TEST_F(AnnotatedChainTest, EveryLayoutHasTheNumbersOfOneRank) {
  const Override drops = {"points.dropout", "0.4"};
  run(chain("one", one_, {drops}), 1);
  const std::vector<AnnotatedLayout> layouts = {
      kZero3,
      kTensorZero3,
      kStages,
      kAll,
      {"tensor 3", 3, {{"parallel.tensor", "3"}}},
      {"pipeline 2", 2, {{"parallel.pipeline", "2"}}},
      {"pipeline 4", 4, {{"parallel.pipeline", "4"}}},
      {"data 3 zero 3", 3, {{"parallel.zero", "3"}}},
      {"hybrid", 4, {{"parallel.shard", "2"}, {"parallel.zero", "3"}}},
      {"stages of zero 3",
       4,
       {{"parallel.pipeline", "2"}, {"parallel.zero", "3"}, {"train.recompute", "full"}}},
      {"zero bubble", 2, {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}}},
      {"interleaved",
       2,
       {{"parallel.pipeline", "2"},
        {"parallel.schedule", "interleaved"},
        {"parallel.stages_per_rank", "2"}}}};
  for (const AnnotatedLayout& layout : layouts) {
    run(chain(layout.name, layout, {drops}), layout.num_ranks);
    expect_same(layout.name, "one", 1e-10);
  }
}

TEST_F(AnnotatedChainTest, Zero3HasTheBitsOfDataParallelism) {
  for (const char* order : {"microbatch-first", "rank-first"}) {
    const AnnotatedLayout both = {
        "", 4, {{"parallel.tensor", "2"}, {"parallel.gradient_order", order}}};
    run(chain(concat("ddp ", order), both), 4);
    for (const char* units : {"1", "2"}) {
      const std::string name = concat("zero 3 ", order, units);
      run(chain(name, both, {{"parallel.zero", "3"}, {"parallel.gathered_units", units}}), 4);
      expect_same(name, concat("ddp ", order), 0);
    }
  }
  // A module that is no chain is one unit.
  const std::vector<Override> split = {{"parallel.tensor", "2"},
                                       {"parallel.gradient_order", "rank-first"}};
  run(config("module", split), 4);
  run(config("unit", {split[0], split[1], {"parallel.zero", "3"}}), 4);
  expect_same("unit", "module", 0);
}

TEST_F(AnnotatedChainTest, Zero3LeavesARankItsPartsBetweenSteps) {
  RunConfig config = chain("run", kTensorZero3, {{"points.width", "100"}});
  open_inputs(config, kTensorZero3.num_ranks);
  int64_t blocks = 0;  // bytes of a tensor rank's
  for (const model::ParameterPlan& each : config.task->model().parameters({.tensor = 2}))
    blocks += 8 * each.layout.local_box(0).numel();
  std::atomic<int64_t> held = 0;
  harness::run_ranks(kTensorZero3.num_ranks, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
    const ParallelModel model(config, mesh, nullptr, nullptr);
    if (world.rank() == 0) held = model.memory().parameters;
  });
  EXPECT_NEAR(static_cast<double>(held), static_cast<double>(blocks) / 2,
              static_cast<double>(blocks) / 20);
}

TEST_F(AnnotatedChainTest, RecomputedLinksHaveTheSameBits) {
  const Override drops = {"points.dropout", "0.4"}, full = {"train.recompute", "full"};
  for (const AnnotatedLayout& layout : {one_, kTensorZero3, kStages}) {
    run(chain(layout.name, layout, {drops}), layout.num_ranks);
    run(chain(layout.name + " again", layout, {drops, full}), layout.num_ranks);
    expect_same(layout.name + " again", layout.name, 0);
  }
}

TEST_F(AnnotatedChainTest, ResumesWithTheSameBitsAndAtAnyOtherLayout) {
  const Override drops = {"points.dropout", "0.4"};
  run(chain("whole", one_, {drops}), 1);
  for (const AnnotatedLayout& from : {kTensorZero3, kStages}) {
    run(chain(from.name, from, {drops}), from.num_ranks);
    for (const AnnotatedLayout& to : {one_, kTensorZero3, kStages}) {
      const std::string name = from.name + " to " + to.name;
      EXPECT_EQ(run(chain(name, from, {drops}), from.num_ranks, /*stop_after=*/3),
                Outcome::kStopped);
      EXPECT_EQ(run(chain(name, to, {drops}), to.num_ranks), Outcome::kFinished);
      expect_same(name, from.name == to.name ? from.name : "whole",
                  from.name == to.name ? 0 : 1e-10);
    }
  }
}

TEST_F(AnnotatedChainTest, AStageHasTheBlocksOfItsLinks) {
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const RunConfig config = chain("run", one_);
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    model::ModelAxes axes;
    axes.tensor.group = &mesh.group("tensor");
    const model::ModelPart part = {
        .first_layer = 1, .num_layers = 2, .embeds = false, .has_head = false};
    const auto stage = config.task->model().make_stage({config, axes, part, 1});
    const auto found = stage->module().named_parameters();
    EXPECT_EQ(found.size(), 8u);  // a norm, three linear ones
    EXPECT_EQ(found["middle.up.weight"].sizes(),
              (std::vector<int64_t>{world.rank() == 0 ? 6 : 5, 5}));
    const std::vector<parallel::Unit> units = stage->units();
    ASSERT_EQ(units.size(), 2u);
    EXPECT_EQ(units[1].name, "tied");
    EXPECT_EQ(units[1].parameters.size(), 2u);
    EXPECT_TRUE(units[1].parameters[0].is_same(found["tied.tied"]));
  });
}

TEST_F(AnnotatedChainTest, ChainsThatAreNoneAreRefusedBeforeTraining) {
  const auto flaw = [&](const char* name) {
    return refusal({{"points.chain", "true"}, {"points.flaw", name}});
  };
  EXPECT_THAT(flaw("no link"), HasSubstr("a chain without a link"));
  EXPECT_THAT(flaw("dot"), HasSubstr("is named \"a.b\"; expected a name without a dot"));
  EXPECT_THAT(flaw("same name"),
              HasSubstr("two links of the annotated module are named \"enter\""));
  EXPECT_THAT(flaw("shared"), AllOf(HasSubstr("\"shared.weight\" is also tied."),
                                    HasSubstr("put both into one link")));
  EXPECT_THAT(flaw("two inputs"), HasSubstr("the link \"two\" does not take one tensor"));
  const std::vector<Override> five = {{"points.chain", "true"}, {"parallel.pipeline", "5"}};
  EXPECT_THAT(refusal(five, 5), HasSubstr("the model has 4 layers"));
}

}  // namespace
}  // namespace trireme::train
