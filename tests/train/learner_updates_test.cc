#include "trireme/train/learner_updates.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/learner_run.h"
#include "trireme/base/error.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/saved_form.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LearnerUpdatesTest : public LearnerRun {
 protected:
  // In fp64, with twelve samples per step and every checkpoint kept.
  RunConfig learners(const std::string& run, int num_learners,
                     std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"train.precision", "fp64"},
                                         {"train.global_batch", "12"},
                                         {"train.micro_batch", "1"},
                                         {"train.gradient_clip", "0"},
                                         {"train.steps", "8"},
                                         {"checkpoint.interval", "1"},
                                         {"checkpoint.keep", "100"}});
    if (num_learners > 1) {
      overrides.insert(overrides.begin(), {"parallel.learners", std::to_string(num_learners)});
    }
    return config(run, std::move(overrides));
  }

  // A file of a graph in which learners give other shares than they get.
  std::string lopsided_graph() const {
    const fs::path path = folder_ / "lopsided.txt";
    std::ofstream(path) << "learners 3\nround\n0 1 1/2\n1 2 1/2\n2 0 1/3\n0 2 1/4\n";
    return path.string();
  }
  // The values of one metric in the lines that have it, by step.
  std::map<int64_t, double> values(const std::string& run, const std::string& key) const {
    std::map<int64_t, double> found;
    for (const auto& line : metrics(run)) {
      if (line.contains(key)) found[line["step"].get<int64_t>()] = line[key].get<double>();
    }
    return found;
  }
};

TEST_F(LearnerUpdatesTest, MeansInEveryStepAreDataParallelismForSgdAndMomentum) {
  for (const std::string momentum : {"0", "0.9"}) {
    const std::vector<Override> sgd{{"optimizer.name", "sgd"},
                                    {"optimizer.momentum", momentum},
                                    {"optimizer.weight_decay", "0"}};
    run(learners("plain" + momentum, 1, sgd), 1);
    for (const int n : {2, 3, 4}) {
      for (const std::string states : {"keep", "average"}) {
        std::vector<Override> overrides = sgd;
        overrides.insert(
            overrides.end(),
            {{"outer.method", "average"}, {"outer.every", "1"}, {"outer.states", states}});
        const std::string name = concat("learners", n, states, momentum);
        run(learners(name, n, overrides), n);
        expect_same_weights(name, "plain" + momentum, 8, 1e-12);
        const auto losses = values(name, "learner_loss"),
                   plain = values("plain" + momentum, "loss");
        ASSERT_EQ(losses.size(), 8U);
        for (const auto& [step, loss] : losses) {
          EXPECT_NEAR(loss, plain.at(step), 1e-12 * loss) << name << " step " << step;
        }
      }
    }
  }
}

TEST_F(LearnerUpdatesTest, UntilTheyTrainApartTheyAreDataParallelRanks) {
  const std::vector<Override> adamw{{"train.evaluate_interval", "1"},
                                    {"train.evaluate_sequences", "8"}};
  run(learners("plain", 1, adamw), 1);
  for (const int n : {2, 3}) {
    std::vector<Override> overrides = adamw;
    overrides.push_back({"outer.begin", "5"});
    const std::string name = concat("learners", n);
    run(learners(name, n, overrides), n);
    expect_same_weights(name, "plain", 5, 1e-11);
    const auto found = values(name, "validation_loss"), plain = values("plain", "validation_loss");
    for (const int64_t step : {1, 2, 3, 4, 5}) {
      EXPECT_NEAR(found.at(step), plain.at(step), 1e-11 * plain.at(step)) << step;
    }
    EXPECT_GT(std::abs(found.at(8) - plain.at(8)), 1e-9) << "they trained together to the end";
  }
}

// A save compares the bits of what learners have in common, and would fail.
TEST_F(LearnerUpdatesTest, ALayoutWithinLearnersChangesNothingButRounding) {
  const std::vector<Override> outer{{"outer.every", "4"}, {"outer.fragments", "2"}};
  run(learners("plain", 2, outer), 2);
  const std::vector<std::vector<Override>> layouts{
      {{"parallel.data", "2"}},
      {{"parallel.data", "2"}, {"parallel.zero", "1"}},
      {{"parallel.data", "2"}, {"parallel.zero", "3"}},
      {{"parallel.tensor", "2"}},
      {{"parallel.pipeline", "2"}},
      {{"parallel.context", "2"}},
      {{"parallel.zero", "3"}, {"parallel.data", "2"}, {"parallel.tensor", "2"}}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    std::vector<Override> overrides = outer;
    overrides.insert(overrides.end(), layouts[i].begin(), layouts[i].end());
    if (layouts[i].size() > 1) overrides.push_back({"model.kv_heads", "2"});
    const std::string name = concat("layout", i), same = concat("same", i);
    std::vector<Override> alone = outer;
    if (layouts[i].size() > 1) alone.push_back({"model.kv_heads", "2"});
    if (layouts[i][0].first == "parallel.tensor") {
      overrides.push_back({"model.kv_heads", "2"});
      alone.push_back({"model.kv_heads", "2"});
    }
    run(learners(same, 2, alone), 2);
    run(learners(name, 2, overrides), layouts[i].size() == 3 ? 8 : 4);
    expect_same_weights(name, same, 8, 1e-10);
    expect_same(name, same, 1e-10, {"loss", "learner_loss", "learner_spread"});
  }
}

TEST_F(LearnerUpdatesTest, EveryStepsCheckpointGoesOnWithTheSameBits) {
  const std::vector<std::vector<Override>> settings{
      {{"outer.every", "4"}},
      {{"outer.every", "4"}, {"outer.fragments", "2"}, {"outer.delay", "1"}, {"outer.mix", "0.5"}},
      {{"outer.every", "6"}, {"outer.delay", "4"}, {"train.precision", "bf16"}},
      {{"outer.method", "average"}, {"outer.every", "3"}, {"outer.states", "average"}},
      {{"outer.every", "2"}, {"outer.begin", "3"}},
      {{"outer.every", "2"}, {"outer.wire", "int4"}, {"outer.kept", "0.25"}},
      {{"outer.every", "2"}, {"outer.method", "gossip"}, {"outer.graph", "base-2"}},
      {{"outer.every", "2"},
       {"outer.method", "push-sum"},
       {"outer.graph", lopsided_graph()},
       {"outer.fragments", "2"}},
      {{"outer.every", "2"}, {"outer.method", "gradient-tracking"}, {"outer.graph", "base-2"}},
      {{"outer.every", "4"}, {"outer.method", "d2"}, {"outer.fragments", "2"}}};
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string whole = concat("whole", i);
    run(learners(whole, 3, settings[i]), 3);
    const auto expected = values(whole, "loss");
    ASSERT_EQ(expected.size(), 8U);
    for (int64_t step = 1; step < 8; ++step) {
      const std::string name = concat("again", i, "-", step);
      copy_checkpoint(whole, step, name);
      run(learners(name, 3, settings[i]), 3);
      const auto found = values(name, "loss");
      ASSERT_EQ(static_cast<int64_t>(found.size()), 8 - step) << name;
      for (const auto& [at, loss] : found) EXPECT_EQ(loss, expected.at(at)) << name << " " << at;
      expect_same_weights(name, whole, 8, 0);
    }
  }
}

TEST_F(LearnerUpdatesTest, ADelayedSumGoesOnAtAnotherLayout) {
  const std::vector<Override> outer{
      {"outer.every", "6"}, {"outer.delay", "4"}, {"outer.mix", "0.5"}};
  run(learners("whole", 2, outer), 2);
  std::vector<Override> other = outer;
  other.insert(other.end(), {{"parallel.data", "2"}, {"parallel.zero", "3"}});
  copy_checkpoint("whole", 7, "other");
  run(learners("other", 2, other), 4);
  expect_same_weights("other", "whole", 8, 1e-10);
}

TEST_F(LearnerUpdatesTest, ALossBeforeTheFirstExchangeKnowsNothingOfIt) {
  run(learners("diloco", 2, {{"outer.every", "6"}}), 2);
  run(learners("average", 2, {{"outer.every", "7"}, {"outer.method", "average"}}), 2);
  const auto a = values("diloco", "loss"), b = values("average", "loss");
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) EXPECT_EQ(a.at(step), b.at(step)) << step;
  EXPECT_NE(a.at(7), b.at(7));
}

TEST_F(LearnerUpdatesTest, ARunGoesOnWithMoreLearnersOrNoneWhenAllowed) {
  run(learners("apart", 2, {{"outer.every", "4"}, {"train.steps", "4"}}), 2);
  const std::string allowed = "parallel.learners,outer.every";
  for (const int n : {1, 3}) {
    const std::string name = concat("to", n);
    fs::copy(folder_ / "apart", folder_ / name, fs::copy_options::recursive);
    std::vector<Override> overrides{{"resume.allow", allowed}};
    if (n > 1) overrides.push_back({"outer.every", "4"});
    run(learners(name, n, overrides), n);
    EXPECT_EQ(metrics(name).size(), 8U);
  }
  run(learners("alone", 1, {{"train.steps", "4"}}), 1);
  run(learners("alone", 2, {{"resume.allow", allowed}, {"outer.every", "2"}}), 2);
  EXPECT_EQ(metrics("alone").size(), 8U);
}

TEST_F(LearnerUpdatesTest, ARequestToStopCountsAtTheNextExchange) {
  EXPECT_EQ(run(learners("run", 2, {{"outer.every", "3"}, {"checkpoint.interval", "0"}}), 2,
                /*stop_after=*/2),
            Outcome::kStopped);
  EXPECT_EQ(metrics("run").size(), 3U);
  EXPECT_EQ(run(learners("run", 2, {{"outer.every", "3"}}), 2), Outcome::kFinished);
  EXPECT_EQ(metrics("run").size(), 8U);
}

TEST_F(LearnerUpdatesTest, GossipOnACompleteGraphIsTheMean) {
  for (const int n : {2, 3, 4}) {
    const std::string mean = concat("mean", n);
    run(learners(mean, n, {{"outer.method", "average"}, {"outer.every", "2"}}), n);
    for (const std::string method : {"gossip", "gradient-tracking", "d2"}) {
      const std::string name = concat(method, n);
      run(learners(name, n,
                   {{"outer.method", method}, {"outer.graph", "complete"}, {"outer.every", "2"}}),
          n);
      expect_same_weights(name, mean, 8, 1e-11);
      expect_same(name, mean, 1e-11, {"loss", "learner_loss"});
    }
  }
}

TEST_F(LearnerUpdatesTest, LearnersOnAGraphEndWithTheSameWeightsWhateverTheirLayout) {
  const std::vector<Override> ring{{"outer.method", "gossip"}, {"outer.every", "2"}};
  run(learners("ring", 3, ring), 3);
  for (const std::string zero : {"0", "3"}) {
    std::vector<Override> sharded = ring;
    sharded.insert(sharded.end(), {{"parallel.data", "2"}, {"parallel.zero", zero}});
    run(learners("ring" + zero, 3, sharded), 6);
    expect_same_weights("ring" + zero, "ring", 8, 1e-10);
  }
  const std::vector<Override> push{
      {"outer.method", "push-sum"}, {"outer.every", "2"}, {"outer.graph", lopsided_graph()}};
  EXPECT_EQ(run(learners("push", 3, push), 3), Outcome::kFinished);
  const auto losses = values("push", "learner_loss");
  EXPECT_LT(losses.at(6), losses.at(2));
}

TEST_F(LearnerUpdatesTest, FewBitsLearnWithFewerBytes) {
  std::map<std::string, double> bytes;
  for (const std::string wire : {"fp32", "int8", "int4", "two-bit", "sign"}) {
    run(learners(wire, 2, {{"outer.every", "4"}, {"outer.wire", wire}}), 2);
    bytes[wire] = values(wire, "outer_bytes").at(4);
    EXPECT_LT(values(wire, "learner_loss").at(8), values(wire, "learner_loss").at(4)) << wire;
  }
  EXPECT_LT(bytes["sign"], bytes["two-bit"]);
  EXPECT_LT(bytes["two-bit"], bytes["int4"]);
  EXPECT_LT(bytes["int4"], bytes["int8"]);
  EXPECT_LT(bytes["int8"], bytes["fp32"] / 4);
}

TEST_F(LearnerUpdatesTest, MetricsTellOfExchanges) {
  run(learners("run", 2, {{"outer.every", "4"}}), 2);
  const auto bytes = values("run", "outer_bytes");
  ASSERT_EQ(bytes.size(), 2U);
  int64_t elements = 0;
  for (const auto& [name, tensor] : saved("run", 8)) {
    if (!name.starts_with("optimizer.") && !name.starts_with(kLearnerPrefix)) {
      elements += tensor.numel();
    }
  }
  // Each learner sends its difference once, and four notes.
  EXPECT_EQ(bytes.at(4), static_cast<double>(8 * elements + 4 * 8));
  EXPECT_GT(values("run", "learner_spread").at(4), 0);
  EXPECT_EQ(values("run", "learners").size(), 8U);
}

TEST_F(LearnerUpdatesTest, ExpertsAreExchangedToo) {
  const std::vector<Override> moe{
      {"model.family", "mixtral"}, {"model.experts", "4"}, {"outer.every", "4"}};
  run(learners("plain", 2, moe), 2);
  std::vector<Override> expert = moe;
  expert.insert(expert.end(), {{"parallel.data", "2"}, {"parallel.expert", "2"}});
  run(learners("expert", 2, expert), 4);
  expect_same_weights("expert", "plain", 8, 1e-9);
}

TEST_F(LearnerUpdatesTest, WhatCannotBeCombinedIsRefused) {
  const auto refusal = [&](std::vector<Override> overrides, int ranks = 4) {
    RunConfig config = learners("refused", 2, std::move(overrides));
    return harness::message_of<ConfigError>([&] { resolve(config, ranks); });
  };
  EXPECT_THAT(refusal({}, 3), HasSubstr("parallel.learners is 2, which does not divide the 3"));
  EXPECT_THAT(refusal({{"train.global_batch", "6"}}), HasSubstr("data ranks of all learners"));
  EXPECT_THAT(refusal({{"outer.every", "5"}, {"outer.fragments", "2"}}), HasSubstr("such as 4"));
  EXPECT_THAT(refusal({{"outer.every", "4"}, {"outer.delay", "4"}}), HasSubstr("outer.delay is 4"));
  EXPECT_THAT(refusal({{"outer.mix", "0.5"}}), HasSubstr("without outer.delay"));
  EXPECT_THAT(refusal({{"outer.method", "average"}, {"outer.momentum", "0.5"}}),
              HasSubstr("leave them out"));
  EXPECT_THAT(refusal({{"outer.states", "average"}, {"outer.delay", "1"}}),
              HasSubstr("set outer.delay to 0"));
  EXPECT_THAT(refusal({{"outer.graph", "complete"}}), HasSubstr("all exchange with all"));
  EXPECT_THAT(refusal({{"outer.method", "gossip"}, {"outer.kept", "0.1"}}),
              HasSubstr("outer.kept = 0.1"));
  EXPECT_THAT(
      refusal({{"parallel.learners", "4"}, {"outer.method", "d2"}, {"outer.graph", "base-2"}}),
      HasSubstr("2 different rounds"));
  EXPECT_THAT(refusal({{"outer.method", "gradient-tracking"}, {"outer.delay", "1"}}),
              HasSubstr("neighbours wait"));
  EXPECT_THAT(refusal({{"outer.method", "gossip"}, {"outer.graph", "rings"}}),
              HasSubstr("expected complete, ring"));
  EXPECT_THAT(refusal({{"parallel.learners", "3"},
                       {"train.global_batch", "12"},
                       {"outer.method", "gossip"},
                       {"outer.graph", "one-peer"}},
                      3),
              HasSubstr("base-2"));
  EXPECT_THAT(refusal({{"parallel.learners", "3"},
                       {"outer.method", "gossip"},
                       {"outer.graph", lopsided_graph()}},
                      3),
              HasSubstr("push-sum"));
  const auto together = [](const char* steps) {
    return std::vector<Override>{
        {"optimizer.name", "onebit-adam"}, {"optimizer.freeze_step", "3"}, {"outer.begin", steps}};
  };
  EXPECT_THAT(refusal(together("4")), HasSubstr("above optimizer.freeze_step = 3"));
  EXPECT_EQ(refusal(together("3")), "");
  EXPECT_THAT(refusal({{"parallel.servers", "1"}}), HasSubstr("parallel.servers"));
  EXPECT_THAT(refusal({{"train.precision", "fp16"}}), HasSubstr("use bf16 or fp32"));
  EXPECT_THAT(refusal({{"train.skip_bad_steps", "1"}}), HasSubstr("set it to 0"));
  RunConfig alone = learners("refused", 1, {{"outer.every", "5"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { resolve(alone, 1); }),
              HasSubstr("set parallel.learners, for example to 2"));
}

}  // namespace
}  // namespace trireme::train
