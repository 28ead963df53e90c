#include "trireme/train/parameter_servers.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class ParameterServersTest : public TextRun {
 protected:
  // With `servers`; without clipping where there is no staleness.
  RunConfig served(const std::string& run, int64_t servers, int64_t staleness,
                   std::vector<Override> overrides = {}) const {
    overrides.push_back({"parallel.servers", std::to_string(servers)});
    overrides.push_back({"parallel.staleness", std::to_string(staleness)});
    return unclipped(run, std::move(overrides));
  }
  RunConfig unclipped(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.gradient_clip", "0"});
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

TEST_F(ParameterServersTest, WithoutStalenessLossesHaveTheBitsOfDataParallelism) {
  for (const std::string optimizer : {"adamw", "sgd", "lion"}) {
    for (const int workers : {1, 2, 3}) {
      const std::vector<Override> overrides{{"optimizer.name", optimizer},
                                            {"train.global_batch", "12"}};
      const std::string plain = "plain-" + optimizer + std::to_string(workers);
      const std::string name = "served-" + optimizer + std::to_string(workers);
      run(unclipped(plain, overrides), workers);
      run(served(name, 2, 0, overrides), workers + 2);
      expect_same(name, plain, 0, {"loss", "learning_rate"});
    }
  }
}

TEST_F(ParameterServersTest, CopiesOfServersChangeNoBit) {
  run(unclipped("plain"), 2);
  run(served("served", 3, 0, {{"parallel.server_copies", "2"}}), 5);
  expect_same("served", "plain", 0, {"loss"});
}

TEST_F(ParameterServersTest, ACheckpointGoesOnWithOrWithoutServers) {
  run(unclipped("plain"), 2);
  run(served("served", 1, 0), 3, /*stop_after=*/4);
  run(served("served", 2, 0), 4);
  expect_same("served", "plain", 0, {"loss"});
  run(served("mixed", 2, 0), 4, /*stop_after=*/4);
  EXPECT_LT(metrics("mixed").size(), 6U);
  run(unclipped("mixed"), 2);
  expect_same("mixed", "plain", 0, {"loss", "learning_rate"});
}

TEST_F(ParameterServersTest, StaleWorkersLearnAndAreReplayedBitForBit) {
  for (const std::string staleness : {"2", "-1"}) {
    const std::vector<Override> steps{{"train.steps", "12"},
                                      {"checkpoint.interval", "5"},
                                      {"train.global_batch", "12"},
                                      {"train.gradient_clip", "0.5"}};
    const std::string first = "first" + staleness, again = "again" + staleness;
    EXPECT_EQ(run(served(first, 2, std::stoll(staleness), steps), 5), Outcome::kFinished);
    const auto lines = metrics(first);
    ASSERT_EQ(lines.size(), 12U);
    EXPECT_LT(lines.back()["loss"], lines.front()["loss"]);
    std::ifstream file(folder_ / first / "server-log" / "staleness.json");
    int64_t pulls = 0;
    const auto histogram = nlohmann::json::parse(file);
    for (const auto& [ahead, count] : histogram.items()) {
      if (staleness == "2") EXPECT_LE(std::stoll(ahead), 2);
      pulls += count.get<int64_t>();
    }
    EXPECT_GT(pulls, 0);
    std::vector<Override> replay = steps;
    replay.push_back({"parallel.replay", (folder_ / first / "server-log").string()});
    run(served(again, 2, std::stoll(staleness), replay), 5);
    expect_same(again, first, 0, {"loss", "grad_norm"});
  }
}

// As after a crash before the first checkpoint.
TEST_F(ParameterServersTest, AReplayInTheFolderOfItsLogKeepsTheLog) {
  const std::vector<Override> overrides{{"checkpoint.interval", "0"}};
  run(served("first", 1, parallel::kAsynchronous, overrides), 3);
  fs::create_directories(folder_ / "run");
  fs::copy(folder_ / "first" / "server-log", folder_ / "run" / "server-log");
  std::vector<Override> replay = overrides;
  replay.push_back({"parallel.replay", (folder_ / "run" / "server-log").string()});
  run(served("run", 1, parallel::kAsynchronous, replay), 3);
  expect_same("run", "first", 0, {"loss", "grad_norm"});
  EXPECT_TRUE(fs::exists(folder_ / "run" / "server-log" / "from-0-server-0"));
}

TEST_F(ParameterServersTest, AnAsynchronousRunStopsWhenAskedAndGoesOn) {
  EXPECT_EQ(run(served("run", 1, parallel::kAsynchronous), 3, /*stop_after=*/3), Outcome::kStopped);
  EXPECT_EQ(run(served("run", 1, parallel::kAsynchronous), 3), Outcome::kFinished);
  EXPECT_EQ(metrics("run").size(), 6U);
  EXPECT_EQ(run(served("run", 1, parallel::kAsynchronous), 3), Outcome::kFinished) << "again";
}

TEST_F(ParameterServersTest, AFolderThatIsLostEndsTheWorkersWithOneMessageAndAllThatTheyKnow) {
  run(served("whole", 1, 0), 3);
  for (const int64_t staleness : {int64_t{0}, parallel::kAsynchronous}) {
    const std::string name = staleness == 0 ? "moved" : "stale", there = name + "-elsewhere";
    struct Observer : TrainObserver {
      std::function<void()> lose;
      void on_step(const StepMetrics& metrics) override {
        if (metrics.step == 3) lose();
      }
    } observer;
    observer.lose = [&] { fs::rename(folder_ / name, folder_ / there); };
    TrainObserver silent;
    std::vector<std::string> messages(2);
    harness::run_ranks(3, [&](comm::Communicator& world) {
      Trainer trainer(served(name, 1, staleness, {{"checkpoint.interval", "0"}}), world,
                      world.rank() == 0 ? observer : silent);
      const std::atomic<bool> stop = false;
      if (world.rank() == 2) {  // the server ends when nobody needs it
        EXPECT_THROW(trainer.run(stop), Error);
        return;
      }
      messages[static_cast<size_t>(world.rank())] =
          harness::message_of<ConfigError>([&] { trainer.run(stop); });
    });
    EXPECT_NE(messages[0].find("was moved to"), std::string::npos) << messages[0];
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_FALSE(fs::exists(folder_ / name));
    EXPECT_EQ(run(served(there, 1, staleness), 3), Outcome::kFinished);
    EXPECT_EQ(metrics(there).size(), 6U);
  }
  expect_same("moved-elsewhere", "whole", 0, {"loss"});
}

// With workers that do, tests/cli/profile_test.py profiles: libtorch's profiler is one a process.
TEST_F(ParameterServersTest, WorkersThatShareNoStepAreNotProfiled) {
  TrainObserver silent;
  const std::string refusal = harness::message_of<ConfigError>([&] {
    harness::run_ranks(3, [&](comm::Communicator& world) {
      Trainer(served("apart", 1, 2), world, silent, {.num_steps = 2, .warmup_steps = 1});
    });
  });
  EXPECT_NE(refusal.find("a profile with parallel.staleness 2"), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
  EXPECT_TRUE(metrics("apart").empty());
}

TEST_F(ParameterServersTest, RefusesWhatDoesNotGoWithServersInOneLine) {
  const std::vector<std::pair<Override, std::string>> refused{
      {{"parallel.tensor", "2"}, "parallel.tensor = 2"},
      {{"parallel.pipeline", "2"}, "parallel.pipeline = 2"},
      {{"parallel.context", "2"}, "parallel.context = 2"},
      {{"parallel.zero", "1"}, "parallel.zero = 1"},
      {{"train.reproducible", "true"}, "train.reproducible"},
      {{"train.gradient_clip", "1"}, "train.gradient_clip = 1"},
      {{"train.precision", "bf16"}, "train.precision"},
      {{"train.compression", "topk"}, "train.compression"},
      {{"train.evaluate_interval", "2"}, "train.evaluate_interval"},
      {{"train.skip_bad_steps", "2"}, "train.skip_bad_steps"},
      {{"train.uneven_batches", "true"}, "train.uneven_batches"},
      {{"parallel.gradient_order", "rank-first"}, "parallel.gradient_order"},
      {{"optimizer.name", "muon"}, "optimizer.name"},
      {{"parallel.server_copies", "3"}, "parallel.server_copies is 3 with 2 servers"},
      {{"parallel.servers", "4"}, "leaves no worker"}};
  for (const auto& [key, part] : refused) {
    const std::string text = refusal(unclipped("run", {{"parallel.servers", "2"}, key}), 4);
    EXPECT_NE(text.find(part), std::string::npos) << key.first << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_NE(refusal(unclipped("run", {{"parallel.staleness", "2"}}), 2).find("without"),
            std::string::npos);
  EXPECT_NE(refusal(served("run", 2, 4, {{"train.reproducible", "true"}}), 4).find("reproducible"),
            std::string::npos);
}

TEST_F(ParameterServersTest, MoreServersThanKeysEndTheRunInOneLine) {
  try {
    run(served("run", 60, 0), 61);
    FAIL() << "trained with more servers than keys";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("60 servers for"), std::string::npos) << error.what();
  }
}

TEST(Meeting, AllLearnTheLeastStepAndTheStrongestReason) {
  harness::run_ranks(3, [](comm::Communicator& workers) {
    const Meeting meeting =
        meet(workers, 10 + workers.rank(), workers.rank() == 1 ? Leave::kFolderLost : Leave::kNo);
    EXPECT_EQ(meeting.step, 10);
    EXPECT_EQ(meeting.sum_of_steps, 33);
    EXPECT_EQ(meeting.num_counted, 3);
    EXPECT_EQ(meeting.leave, Leave::kFolderLost);
    const Meeting some = meet(workers, 10 + workers.rank(), Leave::kNo, workers.rank() != 1);
    EXPECT_EQ(some.sum_of_steps, 22);
    EXPECT_EQ(some.num_counted, 2);
  });
}

}  // namespace
}  // namespace trireme::train
