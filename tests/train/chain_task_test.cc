#include "trireme/train/chain_task.h"

#include <atomic>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/live_bytes.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/points_run.h"
#include "tests/train/tensorboard.h"
#include "trireme/base/error.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLinkWidth = 128, kNumLinks = 8;

class ChainTaskTest : public PointsRun {};

TEST_F(ChainTaskTest, TheFirstStepIsThatOfTorchAlone) {
  const RunConfig config = this->config("run", {{"train.gradient_clip", "0"}});
  run(config, 1);
  PointsTask task;
  at::manual_seed(config.train.seed);
  const Chain chain = task.make_chain();
  const Points points;
  const dataset::SampleOrder order(points.size(), config.data.seed, /*shuffle=*/true);
  at::Tensor sum = at::zeros({}, at::kDouble);
  std::vector<at::Tensor> parameters;
  for (const Chain::Link& link : chain.links()) {
    link.module->to(at::kDouble);
    for (const at::Tensor& parameter : link.module->parameters()) parameters.push_back(parameter);
  }
  for (int64_t n = 0; n < 8; ++n) {
    const dataset::NamedTensors sample = points.get(order.index(n), std::nullopt);
    at::Tensor x = sample[0].second.unsqueeze(0);
    for (const Chain::Link& link : chain.links()) x = link.forward(x);
    sum = sum + at::nll_loss(at::log_softmax(x, 1), sample[1].second.unsqueeze(0));
  }
  const at::Tensor loss = sum / 8;
  loss.backward();
  double squares = 0;
  for (const at::Tensor& parameter : parameters) {
    squares += parameter.grad().square().sum().item<double>();
  }
  const auto found = metrics("run");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_NEAR(found[0]["loss"].get<double>(), loss.item<double>(), 1e-13);
  EXPECT_NEAR(found[0]["grad_norm"].get<double>(), std::sqrt(squares), 1e-12);
  EXPECT_TRUE(found[0].contains("samples_per_second"));
  EXPECT_EQ(found[0]["count"].get<double>(), 8);
  EXPECT_EQ(found[2]["validation_count"].get<double>(), 40);
  const double right = 8 * found[0]["accuracy"].get<double>();
  EXPECT_EQ(right, std::round(right));
}

TEST_F(ChainTaskTest, AMetricOfNothingIsNullAndTheUserLearnsOfItOnce) {
  struct Observer : TrainObserver {
    std::vector<std::string> findings;
    void on_finding(const std::string& line) override { findings.push_back(line); }
  } observer;
  const RunConfig undefined = config("run", {{"points.flaw", "undefined"}});
  harness::run_ranks(2, [&](comm::Communicator& world) {
    TrainObserver silent;
    const std::atomic<bool> stop = false;
    Trainer(undefined, world, world.rank() == 0 ? observer : silent).run(stop);
  });
  for (const nlohmann::json& line : metrics("run")) {
    EXPECT_TRUE(line.at("nothing").is_null());
    EXPECT_TRUE(line.at("accuracy").is_number());
    EXPECT_EQ(line.contains("validation_nothing"), line.contains("validation_loss"));
    if (line.contains("validation_loss")) EXPECT_TRUE(line.at("validation_nothing").is_null());
  }
  EXPECT_EQ(observer.findings,
            (std::vector<std::string>{
                "nothing is undefined in step 1: null in metrics.jsonl",
                "validation_nothing is undefined in step 3: null in metrics.jsonl"}));
  const auto scalars = read_with_tensorboard(folder_ / "run/tensorboard").at("scalars");
  EXPECT_TRUE(scalars.contains("validation_accuracy"));
  EXPECT_FALSE(scalars.contains("nothing") || scalars.contains("validation_nothing"));
}

TEST_F(ChainTaskTest, EveryZeroStageRecomputeAndScheduleHaveTheSameBits) {
  for (const char* order : {"microbatch-first", "rank-first"}) {
    const std::string ddp = concat("ddp ", order);
    run(config(ddp, {{"parallel.gradient_order", order}}), 2);
    for (const char* zero : {"1", "2", "3"}) {
      for (const char* recompute : {"none", "full"}) {
        const std::string name = concat(order, zero, recompute);
        run(config(name, {{"parallel.zero", zero},
                          {"parallel.gradient_order", order},
                          {"train.recompute", recompute}}),
            2);
        expect_same(name, ddp, 0);
      }
    }
  }
}

// Ranks that took turns at the samples would normalise others together.
TEST_F(ChainTaskTest, BatchNormsOfAReproducibleRunKeepTheirSamples) {
  const std::vector<Override> keys = {
      {"points.batch_norm", "true"}, {"train.reproducible", "true"}, {"train.micro_batch", "1"}};
  std::vector<Override> sharded = keys, refused = keys;
  sharded.emplace_back("parallel.zero", "3");
  run(config("norm ddp", keys), 2);
  run(config("norm zero", sharded), 2);
  expect_same("norm zero", "norm ddp", 0);
  refused.emplace_back("parallel.gradient_order", "rank-first");
  EXPECT_THAT(refusal(refused, 2), HasSubstr("batch norms would see other samples together"));
}

TEST_F(ChainTaskTest, LinksThatAreFunctionsHaveTheBitsOfTheirModules) {
  run(config("modules", {{"parallel.gradient_order", "rank-first"}}), 2);
  for (const char* zero : {"0", "1", "2", "3"}) {
    const std::string name = concat("functions", zero);
    run(config(name, {{"parallel.zero", zero},
                      {"parallel.gradient_order", "rank-first"},
                      {"points.deferred", "true"}}),
        2);
    expect_same(name, "modules", 0);
  }
  run(config("stages", {{"parallel.pipeline", "2"}}), 4);
  run(config("stages of functions",
             {{"parallel.pipeline", "2"}, {"parallel.zero", "1"}, {"points.deferred", "true"}}),
      4);
  expect_same("stages of functions", "stages", 0);
}

// Where ZeRO will shard it: when it is built, and when its parts are filled.
TEST_F(ChainTaskTest, AChainOfFunctionsHasOneLinkWholeAtATime) {
  const ChainModel model(
      [] {
        Chain chain;
        for (int64_t i = 0; i < kNumLinks; ++i) {
          chain.add(concat("link", i), [] { return torch::nn::Linear(kLinkWidth, kLinkWidth); });
        }
        return chain;
      },
      [](uint64_t) { return ChainGoal(); });
  RunConfig config = this->config("run");
  config.train.precision = at::kFloat;
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const auto stage = model.make_stage({config, {}, {.without_memory = at::kCPU}, 0});
  constexpr int64_t kLink = (kLinkWidth * kLinkWidth + kLinkWidth) * 4;
  EXPECT_LT(live->peak(), 2 * kLink);
  EXPECT_LT(live->bytes(), kLink);

  // The upper half of one weight, the whole of a bias, against a chain of modules.
  const mesh::Layout cut({kLinkWidth, kLinkWidth}, {{"shard", 2}}, {mesh::Placement::sharded(0)});
  const mesh::Layout whole({kLinkWidth}, {{"shard", 1}});
  const std::vector<parallel::Shard> shards = {
      {.name = "link3.weight", .weights = at::empty({kLinkWidth / 2, kLinkWidth}), .layout = cut},
      {.name = "link5.bias", .weights = at::empty({kLinkWidth}), .layout = whole}};
  stage->initialise(shards);
  EXPECT_LT(live->peak(), 3 * kLink);
  at::manual_seed(config.train.seed);
  std::vector<torch::nn::Linear> links;
  for (int64_t i = 0; i < kNumLinks; ++i) links.emplace_back(kLinkWidth, kLinkWidth);
  EXPECT_TRUE(shards[0].weights.equal(links[3]->weight.narrow(0, 0, kLinkWidth / 2)));
  EXPECT_TRUE(shards[1].weights.equal(links[5]->bias));
}

TEST_F(ChainTaskTest, OtherLayoutsDifferByRoundingAlone) {
  run(config("one"), 1);
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"two", 2, {}},
      {"four", 4, {{"parallel.zero", "3"}, {"train.micro_batch", "1"}}},
      {"uneven", 3, {{"train.uneven_batches", "true"}}},
      {"pipeline", 2, {{"parallel.pipeline", "2"}}},
      {"by hand", 2, {{"parallel.pipeline", "2"}, {"parallel.stage_layers", "1,3"}}},
      {"four stages", 2, {{"parallel.pipeline", "2"}, {"parallel.schedule", "interleaved"}}},
      {"both", 4, {{"parallel.pipeline", "2"}, {"parallel.zero", "3"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    run(config(name, overrides), num_ranks);
    expect_same(name, "one", 1e-10);
  }
}

TEST_F(ChainTaskTest, ResumesWithTheSameBitsAlsoAtAnotherLayout) {
  run(config("whole"), 2);
  EXPECT_EQ(run(config("cut"), 2, /*stop_after=*/3), Outcome::kStopped);
  EXPECT_EQ(run(config("cut"), 2), Outcome::kFinished);
  expect_same("cut", "whole", 0);
  EXPECT_EQ(run(config("moved"), 2, /*stop_after=*/3), Outcome::kStopped);
  run(config("moved", {{"parallel.pipeline", "4"}}), 4);
  expect_same("moved", "whole", 1e-10);
}

TEST_F(ChainTaskTest, WhatItsModelCannotDoIsRefusedInOneLine) {
  EXPECT_THAT(refusal({{"parallel.tensor", "2"}}, 2),
              AllOf(HasSubstr("parallel.tensor is 2"), HasSubstr("task points has no plan")));
  EXPECT_THAT(refusal({{"parallel.context", "2"}}, 2), HasSubstr("parallel.context is 2"));
  EXPECT_THAT(refusal({{"parallel.pipeline", "5"}}, 5),
              AllOf(HasSubstr("the model has 4 layers"), HasSubstr("5 stages")));
  EXPECT_THAT(refusal({{"train.recompute", "selective"}}),
              AllOf(HasSubstr("train.recompute"), HasSubstr("\"full\" or \"none\"")));
  EXPECT_THAT(refusal({{"points.flaw", "name"}}), HasSubstr("two links of the model are named"));
  EXPECT_THAT(refusal({{"points.flaw", "shared"}}),
              AllOf(HasSubstr("again.linear.weight"), HasSubstr("earlier link")));
  EXPECT_THAT(refusal({{"points.flaw", "empty"}}), HasSubstr("has no link"));
  EXPECT_THAT(refusal({{"points.flaw", "ghost"}, {"parallel.pipeline", "2"}}, 2),
              AllOf(HasSubstr("\"ghost.weight\""), HasSubstr("no stage has it")));
  EXPECT_THAT(refusal({{"points.flaw", "gap"}, {"parallel.pipeline", "2"}}, 2),
              AllOf(HasSubstr("\"head.linear.bias\""), HasSubstr("plan does not name")));
  EXPECT_THAT(refusal({{"points.flaw", "torch norm"}}),
              AllOf(HasSubstr("\"batch_norm\" is a norm of torch"),
                    HasSubstr("use trireme::model::BatchNorm")));
}

TEST_F(ChainTaskTest, ItsKeysAreInTheConfigAndInHelp) {
  EXPECT_THAT(describe_config(kTasks),
              AllOf(HasSubstr("--points.hidden=5"), HasSubstr("width (at least 1"),
                    HasSubstr("--train.steps=")));
  const RunConfig wide = config("run", {{"points.hidden", "7"}});
  EXPECT_THAT(to_toml(wide), HasSubstr("[points]\nhidden = 7\n"));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                config("run", {{"points.hiden", "7"}});
              }),
              HasSubstr("did you mean \"points.hidden\""));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                config("run", {{"points.hidden", "0"}});
              }),
              HasSubstr("points.hidden is 0"));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                config("run", {{"task.name", "pointz"}});
              }),
              AllOf(HasSubstr("task.name is \"pointz\""), HasSubstr("did you mean \"points\"")));
  run(config("run", {{"train.steps", "2"}}), 1);
  const std::string error = harness::message_of<ConfigError>([&] { run(wide, 1); });
  EXPECT_THAT(error, HasSubstr("points.hidden 5 -> 7"));
}

}  // namespace
}  // namespace trireme::train
