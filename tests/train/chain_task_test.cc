#include "trireme/train/chain_task.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/train/small_run.h"
#include "tests/train/tensorboard.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/dataset/sample_order.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kClasses = 3;

// Points in four dimensions; their class is where a hyperplane puts them.
class Points : public dataset::Source {
 public:
  // bad_every: samples 1, 1 + bad_every, ... cannot be read; 0: all can
  explicit Points(int64_t bad_every = 0) : bad_every_(bad_every) {}
  int64_t size() const override { return 40; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    TRIREME_CHECK(bad_every_ == 0 || index % bad_every_ != 1, "point ", index, " is damaged");
    const at::Tensor x = at::sin(at::arange(4, at::kDouble) * 0.7 + static_cast<double>(index));
    const auto label = static_cast<int64_t>((x.sum().item<double>() + 4) * kClasses / 8);
    return {{"x", x}, {"y", at::scalar_tensor(label, at::kLong)}};
  }

 private:
  int64_t bad_every_;
};

struct PointsConfig {
  TRIREME_KEYS_BEGIN(PointsConfig)
  TRIREME_KEY(int64_t, hidden, 5, kMustStay, "width", Range{1, 100})
  TRIREME_KEY(bool, batch_norm, false, kMustStay, "the model has buffers")
  TRIREME_KEY(int64_t, bad_every, 0, kMayChange, "which samples cannot be read", Range{0, 100})
  TRIREME_KEY(std::string, flaw, "", kMustStay, "what is wrong with the model")
  TRIREME_KEYS_END()
};

struct Layer : torch::nn::Module {
  Layer(int64_t in, int64_t out, bool has_activation) : has_activation(has_activation) {
    linear = register_module("linear", torch::nn::Linear(in, out));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear(x);
    return has_activation ? at::tanh(y) : y;
  }
  bool has_activation;
  torch::nn::Linear linear{nullptr};
};

// Has a buffer that never changes, and a parameter in a module of its own.
struct Shift : torch::nn::Module {
  explicit Shift(int64_t width) {
    shift = register_module("shift", torch::nn::Linear(width, width));
    constant = shift->register_buffer("constant", at::full({width}, 0.25));
  }
  at::Tensor forward(const at::Tensor& x) { return shift(x) + constant; }
  torch::nn::Linear shift{nullptr};
  at::Tensor constant;
};

class PointsTask : public ChainTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<PointsTask>(*this); }
  void add_keys(Keys& keys) override { keys.add("points", config_); }
  void open(bool evaluates) override {
    evaluates_ = evaluates;
    points_ = Points(config_.bad_every);
  }
  const dataset::Source& training() const override { return points_; }
  const dataset::Source* validation() const override { return evaluates_ ? &points_ : nullptr; }
  std::string data_name() const override { return "points"; }

  Chain make_chain() const override {
    Chain chain;
    const int64_t H = config_.hidden;
    const auto first = std::make_shared<Layer>(4, H, true);
    chain.add("first", first);
    chain.add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({H})));
    chain.add(config_.flaw == "name" ? "first" : "second", std::make_shared<Layer>(H, H, true));
    if (config_.flaw == "shared") chain.add("again", first);
    if (config_.flaw == "torch norm") chain.add("batch_norm", torch::nn::BatchNorm1d(H));
    if (config_.batch_norm) {
      chain.add("more.norm", model::BatchNorm(H), {.flops = 1});
      chain.add("", std::make_shared<Shift>(H));
    }
    chain.add("head", std::make_shared<Layer>(H, kClasses, false));
    if (config_.flaw == "empty") return {};
    return chain;
  }
  at::Tensor loss_sum(const at::Tensor& logits_BC, const StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits_BC, 1), batch["y"], {}, at::Reduction::Sum);
  }
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = {
        {.name = "accuracy"},
        {.name = "count", .size = 1, .finish = [](std::span<const double> s) { return s[0]; }}};
    if (config_.flaw == "undefined") all.push_back({.name = "nothing"});
    return all;
  }
  at::Tensor metric_states(const at::Tensor& logits_BC, const StageInput& batch) const override {
    std::vector<at::Tensor> states = {
        accuracy_state(logits_BC, batch["y"]),
        at::full({1}, static_cast<double>(logits_BC.size(0)), at::kDouble)};
    if (config_.flaw == "undefined") states.push_back(at::zeros({2}, at::kDouble));
    return at::cat(states);
  }

 private:
  PointsConfig config_;
  Points points_;
  bool evaluates_ = false;
};

constexpr TaskKind kTasks[] = {{"points", "tell points apart", []() -> std::unique_ptr<Task> {
                                  return std::make_unique<PointsTask>();
                                }}};

class ChainTaskTest : public SmallRun {
 protected:
  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {"output.folder", (folder_ / run).string()});
    return parse_config(R"(
[train]
steps = 6
global_batch = 8
micro_batch = 2
precision = "fp64"
evaluate_interval = 3
evaluate_sequences = 40
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
[checkpoint]
interval = 2
)",
                        "test.toml", kTasks, overrides);
  }

  // fp64 sums of a few dozen terms in another order; 0: the same bits.
  void expect_same(const std::string& actual, const std::string& expected, double relative) {
    SmallRun::expect_same(actual, expected, relative,
                          {"loss", "grad_norm", "validation_loss", "accuracy", "count",
                           "validation_accuracy", "validation_count"});
  }

  std::string refusal(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config("broken", std::move(overrides));
    return harness::message_of([&] {
      open_inputs(broken, num_ranks);
      run(broken, num_ranks);
    });
  }
};

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
  run(config("two"), 2);
  for (const char* zero : {"1", "2", "3"}) {
    for (const char* recompute : {"none", "full"}) {
      const std::string name = concat("zero", zero, recompute);
      run(config(name, {{"parallel.zero", zero}, {"train.recompute", recompute}}), 2);
      expect_same(name, "two", 0);
    }
  }
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

// A forward's statistics are those of micro_batch * data ranks samples.
TEST_F(ChainTaskTest, BatchNormTakesItsStatisticsOverTheDataRanks) {
  const auto batch_norm = [&](const std::string& name, const char* micro_batch,
                              std::vector<Override> more = {}) {
    more.insert(more.end(), {{"points.batch_norm", "true"}, {"train.micro_batch", micro_batch}});
    return config(name, more);
  };
  run(batch_norm("one", "8"), 1);
  run(batch_norm("two", "4"), 2);
  run(batch_norm("three", "3", {{"train.uneven_batches", "true"}}), 3);
  run(batch_norm("four", "2", {{"parallel.zero", "3"}}), 4);
  run(batch_norm("both", "4", {{"parallel.pipeline", "2"}}), 4);
  for (const char* name : {"two", "three", "four", "both"}) expect_same(name, "one", 1e-10);
  for (const char* zero : {"1", "2", "3"}) {
    for (const char* recompute : {"none", "full"}) {
      const std::string name = concat("zero", zero, recompute);
      run(batch_norm(name, "4",
                     {{"parallel.zero", zero},
                      {"train.recompute", recompute},
                      {"train.check_replicas_interval", "2"}}),
          2);
      expect_same(name, "two", 0);
    }
  }
}

at::Tensor saved(const std::filesystem::path& run, const std::string& name) {
  return checkpoint::load_tensor(checkpoint::latest(run / "checkpoints").value(), name);
}

TEST_F(ChainTaskTest, BuffersAreInTheCheckpoint) {
  const std::vector<Override> buffers = {{"points.batch_norm", "true"}};
  run(config("whole", buffers), 2);
  EXPECT_EQ(run(config("cut", buffers), 2, /*stop_after=*/3), Outcome::kStopped);
  run(config("cut", buffers), 2);
  expect_same("cut", "whole", 0);
  EXPECT_EQ(run(config("moved", buffers), 2, /*stop_after=*/3), Outcome::kStopped);
  std::vector<Override> pipeline = buffers;
  pipeline.insert(pipeline.end(), {{"parallel.pipeline", "2"}, {"parallel.zero", "3"}});
  run(config("moved", pipeline), 4);
  expect_same("moved", "whole", 1e-10);
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"}) {
    const std::string buffer = concat("more.norm.", name);
    harness::assert_same_bits(saved(folder_ / "cut", buffer), saved(folder_ / "whole", buffer),
                              buffer);
  }
  // 6 steps of 2 microbatches.
  EXPECT_EQ(saved(folder_ / "whole", "more.norm.num_batches_tracked").item<int64_t>(), 12);
  EXPECT_EQ(saved(folder_ / "whole", "shift.constant").sizes(), at::IntArrayRef{5});
}

TEST_F(ChainTaskTest, AStepThatIsLeftOutLeavesNoStatistics) {
  // Gradients in fp16 overflow until the scale has been halved a few times.
  run(config("run", {{"points.batch_norm", "true"},
                     {"train.precision", "fp16"},
                     {"train.loss_scale", "1e7"},
                     {"train.steps", "20"}}),
      2);
  int64_t num_kept = 0;
  for (const nlohmann::json& line : metrics("run")) num_kept += line.contains("skipped") ? 0 : 1;
  EXPECT_GT(num_kept, 0);
  EXPECT_LT(num_kept, 20);
  const at::Tensor count = saved(folder_ / "run", "more.norm.num_batches_tracked");
  EXPECT_EQ(count.item<int64_t>(), 2 * num_kept);
}

std::vector<int64_t> bad_samples(const std::vector<nlohmann::json>& lines) {
  std::vector<int64_t> counts;
  for (const nlohmann::json& line : lines) counts.push_back(line.at("bad_samples"));
  return counts;
}

TEST_F(ChainTaskTest, BadSamplesAreReplacedAndCountedAlikeInEveryLayout) {
  const std::vector<Override> some_bad = {{"points.bad_every", "9"},
                                          {"data.skip_bad_samples", "20"}};
  const auto with = [&](const std::string& name, std::vector<Override> overrides) {
    overrides.insert(overrides.end(), some_bad.begin(), some_bad.end());
    return config(name, overrides);
  };
  run(with("one", {}), 1);
  const std::vector<int64_t> counts = bad_samples(metrics("one"));
  // Points 1, 10, 19, 28, 37: each once in the first epoch, which five steps are.
  ASSERT_EQ(counts.size(), 6U);
  EXPECT_EQ(counts[4], 5);
  ASSERT_EQ(findings_.size(), 2U);
  EXPECT_THAT(findings_, ::testing::Each(HasSubstr("data.skip_bad_samples allows 20: point ")));
  EXPECT_THAT(findings_, ::testing::Contains(HasSubstr("evaluation: a sample cannot be read")));
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"two", 2, {{"data.workers", "0"}}},
      {"uneven", 3, {{"train.uneven_batches", "true"}}},
      {"four", 4, {{"parallel.zero", "3"}, {"train.micro_batch", "1"}}},
      {"pipeline", 4, {{"parallel.pipeline", "2"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    run(with(name, overrides), num_ranks);
    expect_same(name, "one", 1e-10);
    EXPECT_EQ(bad_samples(metrics(name)), counts) << name;
    EXPECT_EQ(findings_.size(), 2U) << name;
  }
  run(with("cut", {}), 1, /*stop_after=*/3);
  run(with("cut", {}), 1);
  expect_same("cut", "one", 0);
  EXPECT_EQ(bad_samples(metrics("cut")), counts);
}

TEST_F(ChainTaskTest, TooManyBadSamplesEndARun) {
  for (const int num_ranks : {1, 2, 4}) {
    EXPECT_THAT(refusal({{"points.bad_every", "9"},
                         {"data.skip_bad_samples", "3"},
                         {"train.evaluate_interval", "0"}},
                        num_ranks),
                HasSubstr("data.skip_bad_samples is 3 and 5 samples cannot be read; the last: "
                          "point 37 is damaged; repair or remove such files"));
  }
  EXPECT_THAT(refusal({{"points.bad_every", "9"}}), HasSubstr(" is damaged"));
  // 40 points, of which the evaluation reads all.
  EXPECT_THAT(refusal({{"points.bad_every", "9"},
                       {"data.skip_bad_samples", "4"},
                       {"train.global_batch", "2"},
                       {"train.evaluate_interval", "1"}}),
              HasSubstr("data.skip_bad_samples is 4 and 5 samples"));
}

TEST_F(ChainTaskTest, AnEpochsLastBatchIsKeptOrDroppedInEveryLayout) {
  for (const std::string last_batch : {"keep", "drop"}) {
    const auto with = [&](const std::string& name, std::vector<Override> overrides) {
      overrides.insert(overrides.begin(), {{"data.last_batch", last_batch},
                                           {"train.global_batch", "12"},
                                           {"train.micro_batch", "3"},
                                           {"train.steps", "10"}});
      return config(name + last_batch, overrides);
    };
    run(with("one", {}), 1);
    // 40 points are three batches of twelve and four more.
    const auto lines = metrics("one" + last_batch);
    ASSERT_EQ(lines.size(), 10U);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(lines[i].at("count").get<double>(), last_batch == "keep" && i % 4 == 3 ? 4 : 12)
          << i;
    }
    const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
        {"two", 2, {}},
        {"three", 3, {{"train.micro_batch", "1"}, {"parallel.zero", "2"}}},
        {"four", 4, {{"parallel.zero", "3"}}},
        {"uneven", 4, {{"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}},
        {"pipeline", 4, {{"parallel.pipeline", "2"}}}};
    for (const auto& [name, num_ranks, overrides] : layouts) {
      run(with(name, overrides), num_ranks);
      expect_same(name + last_batch, "one" + last_batch, 1e-10);
    }
    run(with("cut", {}), 1, /*stop_after=*/4);
    run(with("cut", {}), 1);
    expect_same("cut" + last_batch, "one" + last_batch, 0);
  }
}

TEST_F(ChainTaskTest, LastBatchesThatCannotBeAreRefused) {
  EXPECT_THAT(refusal({{"data.last_batch", "drop"}, {"train.global_batch", "42"}}),
              HasSubstr("data.last_batch is \"drop\" and the training data has 40 samples, fewer "
                        "than train.global_batch = 42"));
  EXPECT_THAT(refusal({{"data.last_batch", "keep"}, {"train.measure_noise", "true"}}),
              HasSubstr("data.last_batch is \"keep\""));
  run(config("run", {{"train.steps", "2"}}), 1);
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                run(config("run", {{"data.last_batch", "keep"}}), 1);
              }),
              HasSubstr("data.last_batch"));
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
