#include "trireme/train/decoupled_learners.h"

#include <fstream>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/ranks.h"
#include "tests/train/learner_run.h"
#include "trireme/base/error.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;

class DecoupledLearnersTest : public LearnerRun {
 protected:
  // In fp64, with twelve samples per step and every checkpoint kept.
  RunConfig learners(const std::string& run, int num_learners, const std::string& method,
                     std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"train.precision", "fp64"},
                                         {"train.global_batch", "12"},
                                         {"train.micro_batch", "1"},
                                         {"train.gradient_clip", "0"},
                                         {"train.steps", "8"},
                                         {"checkpoint.interval", "0"},
                                         {"checkpoint.keep", "100"},
                                         {"outer.method", method},
                                         {"parallel.learners", std::to_string(num_learners)}});
    if (method == "decoupled") overrides.insert(overrides.begin(), {"parallel.servers", "2"});
    return config(run, std::move(overrides));
  }
  std::string refusal(RunConfig config, int num_ranks) const {
    try {
      resolve(config, num_ranks);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(DecoupledLearnersTest, WithAllInTheQuorumTheyAreThoseOfDiloco) {
  const std::vector<std::vector<Override>> settings{
      {{"outer.every", "1"}},
      {{"outer.every", "4"}},
      {{"outer.every", "2"}, {"outer.optimizer", "sgd"}, {"outer.momentum", "0"}},
      {{"outer.every", "2"}, {"checkpoint.interval", "1"}}};
  for (size_t i = 0; i < settings.size(); ++i) {
    for (const int n : {2, 3}) {
      const std::string diloco = concat("diloco", i, n), decoupled = concat("decoupled", i, n);
      run(learners(diloco, n, "diloco", settings[i]), n);
      run(learners(decoupled, n, "decoupled", settings[i]), n + 2);
      // A third is rounded, and AdamW makes more of that.
      const double relative = n == 2 ? 1e-12 : 1e-10;
      expect_same_weights(decoupled, diloco, 8, relative);
      expect_same(decoupled, diloco, relative, {"loss"});
    }
  }
}

TEST_F(DecoupledLearnersTest, FragmentsBehindTheTrainingAreThoseOfDiloco) {
  const std::vector<Override> outer{
      {"outer.every", "4"}, {"outer.fragments", "2"}, {"outer.delay", "1"}, {"outer.mix", "0.5"}};
  run(learners("diloco", 2, "diloco", outer), 2);
  run(learners("decoupled", 2, "decoupled", outer), 4);
  expect_same("decoupled", "diloco", 1e-12, {"loss"});
}

TEST_F(DecoupledLearnersTest, DataRanksWithinALearnerChangeNothingButRounding) {
  const std::vector<Override> outer{{"outer.every", "2"}, {"outer.wire", "int8"}};
  run(learners("one", 2, "decoupled", outer), 4);
  run(learners("two", 2, "decoupled", outer), 6);
  expect_same("two", "one", 1e-6, {"loss"});
}

TEST_F(DecoupledLearnersTest, EveryStepsCheckpointGoesOnWithTheSameBits) {
  const std::vector<std::vector<Override>> settings{
      {{"outer.every", "4"}},
      {{"outer.every", "4"}, {"outer.fragments", "2"}, {"outer.delay", "1"}, {"outer.mix", "0.5"}},
      {{"outer.every", "2"}, {"outer.wire", "int4"}, {"outer.kept", "0.25"}}};
  for (size_t i = 0; i < settings.size(); ++i) {
    std::vector<Override> all = settings[i];
    all.push_back({"checkpoint.interval", "1"});
    const std::string whole = concat("whole", i);
    run(learners(whole, 2, "decoupled", all), 4);
    ASSERT_EQ(metrics(whole).size(), 8U);
    for (int64_t step = 1; step < 8; ++step) {
      const std::string name = concat("again", i, "-", step);
      copy_checkpoint(whole, step, name);
      run(learners(name, 2, "decoupled", all), 4);
      const auto found = metrics(name), expected = metrics(whole);
      ASSERT_EQ(static_cast<int64_t>(found.size()), 8 - step) << name;
      for (size_t k = 0; k < found.size(); ++k) {
        EXPECT_EQ(found[k]["loss"], expected[k + static_cast<size_t>(step)]["loss"]) << name;
      }
      expect_same_weights(name, whole, 8, 0);
    }
  }
}

TEST_F(DecoupledLearnersTest, ARunIsReplayedBitForBit) {
  for (const std::string grace : {"0", "0.01"}) {
    const std::vector<Override> outer{{"outer.every", "2"},        {"outer.quorum", "2"},
                                      {"outer.delay", "1"},        {"outer.grace_seconds", grace},
                                      {"outer.staleness", "3"},    {"train.steps", "24"},
                                      {"checkpoint.interval", "9"}};
    const std::string first = "first" + grace, again = "again" + grace;
    EXPECT_EQ(run(learners(first, 3, "decoupled", outer), 5), Outcome::kFinished);
    const auto lines = metrics(first);
    ASSERT_EQ(lines.size(), 24U);
    EXPECT_LT(lines.back()["loss"], lines.front()["loss"]);
    int64_t exchanges = 0;
    for (const auto& line : lines) {
      if (!line.contains("outer_bytes")) continue;
      ++exchanges;
      EXPECT_GE(line["learners"], 1);
      EXPECT_LE(line["learners"], 3);
      EXPECT_GE(line["staleness"], 0);
      EXPECT_GT(line["outer_bytes"], 0);
    }
    EXPECT_GT(exchanges, 8);
    std::ifstream file(folder_ / first / "server-log" / "staleness.json");
    int64_t pushes = 0;
    const auto histogram = nlohmann::json::parse(file);
    for (const auto& [rounds, count] : histogram.items()) pushes += count.get<int64_t>();
    EXPECT_GT(pushes, 0);
    std::vector<Override> replay = outer;
    replay.push_back({"parallel.replay", (folder_ / first / "server-log").string()});
    run(learners(again, 3, "decoupled", replay), 5);
    expect_same(again, first, 0, {"loss", "learners", "staleness"});
    expect_same_weights(again, first, 24, 0);
  }
}

TEST_F(DecoupledLearnersTest, AQuorumOfOneEndsWithEverybodysWork) {
  const std::vector<Override> outer{{"outer.every", "3"}, {"outer.quorum", "1"}};
  EXPECT_EQ(run(learners("run", 3, "decoupled", outer), 5), Outcome::kFinished);
  const auto all = saved("run", 8);
  for (const auto& [name, tensor] : all) {
    if (name.starts_with("optimizer.") || name.starts_with(kLearnerPrefix)) continue;
    for (const std::string learner : {"0", "1", "2"}) {
      const auto own = all.find("learners." + learner + "." + name);
      if (own == all.end()) continue;
      EXPECT_TRUE(own->second.equal(tensor)) << "learners end with the common " << name;
    }
  }
}

TEST_F(DecoupledLearnersTest, ARunStopsWhenAskedAndGoesOn) {
  const std::vector<Override> outer{{"outer.every", "3"}, {"outer.delay", "2"}};
  EXPECT_EQ(run(learners("run", 2, "decoupled", outer), 4, /*stop_after=*/4), Outcome::kStopped);
  EXPECT_LT(metrics("run").size(), 8U);
  EXPECT_EQ(run(learners("run", 2, "decoupled", outer), 4), Outcome::kFinished);
  EXPECT_EQ(metrics("run").size(), 8U);
}

TEST_F(DecoupledLearnersTest, OneLineSaysWhatCannotBeCombined) {
  const std::vector<std::pair<std::vector<Override>, std::string>> cases{
      {{{"outer.quorum", "3"}}, "outer.quorum is 3, and there are 2 learners"},
      {{{"outer.grace_seconds", "1"}}, "a quorum of all has no others to wait for"},
      {{{"train.reproducible", "true"}}, "it depends on who is in time"},
      {{{"parallel.servers", "0"}}, "without parallel.servers"},
      {{{"parallel.staleness", "2"}}, "set outer.staleness"},
      {{{"parallel.zero", "1"}}, "parallel.zero = 1"},
      {{{"parallel.tensor", "2"}, {"parallel.servers", "2"}}, "parallel.tensor = 2"},
      {{{"train.precision", "bf16"}}, "master weights"},
      {{{"outer.begin", "2"}}, "outer.begin = 2"},
      {{{"outer.states", "average"}}, "outer.states"},
      {{{"outer.meeting", "127.0.0.1:29400"}},
       "outer.meeting cannot be combined with parallel.servers = 2"},
      {{{"outer.meeting", "127.0.0.1:29400"}, {"parallel.servers", "0"}, {"outer.staleness", "1"}},
       "outer.meeting cannot be combined with outer.staleness = 1"},
      {{{"outer.delay", "5"}}, "outer.delay is 5"},
      {{{"outer.fragments", "3"}}, "outer.fragments 3"}};
  for (const auto& [overrides, words] : cases) {
    std::vector<Override> all{{"outer.every", "4"}};
    all.insert(all.end(), overrides.begin(), overrides.end());
    EXPECT_THAT(refusal(learners("none", 2, "decoupled", all), 6), HasSubstr(words));
  }
  RunConfig on_device = learners("none", 2, "decoupled");
  on_device.device = at::kCUDA;  // that train.device = "auto" has found
  EXPECT_THAT(refusal(on_device, 6), HasSubstr("train.device = \"auto\""));
  EXPECT_THROW(learners("none", 2, "decoupled", {{"outer.quorum", "-1"}}), ConfigError);
  for (const Override& key : std::vector<Override>{
           {"outer.quorum", "1"}, {"outer.grace_seconds", "1"}, {"outer.staleness", "1"}}) {
    EXPECT_THAT(refusal(learners("none", 2, "diloco", {key}), 2),
                HasSubstr("belong to outer.method = \"decoupled\""));
  }
}

}  // namespace
}  // namespace trireme::train
