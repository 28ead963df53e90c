#include "trireme/train/callbacks/watched_metric.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class BestCheckpointTest : public TextRun {
 protected:
  RunConfig watching(const std::string& run, const std::string& goal,
                     std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"train.evaluate_interval", "1"},
                                         {"train.evaluate_sequences", "8"},
                                         {"checkpoint.interval", "0"},
                                         {"checkpoint.keep", "1"},
                                         {"checkpoint.best", "validation_loss"},
                                         {"checkpoint.best_goal", goal}});
    return config(run, overrides);
  }

  std::vector<std::string> kept(const std::string& run) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / run / "best")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
};

TEST_F(BestCheckpointTest, OutlivesTheNewerOnes) {
  run(watching("a", "largest", {{"train.steps", "8"}}), 2);
  const auto lines = metrics("a");
  const auto best = std::ranges::max_element(lines, {}, [](const nlohmann::json& line) {
    return line.at("validation_loss").get<double>();
  });
  ASSERT_NE(best, lines.end() - 1) << "the loss should fall";
  const std::string name = concat("step-00000", best->at("step").get<int64_t>());
  EXPECT_EQ(kept("a"), std::vector<std::string>{name});
  const auto report = checkpoint::verify(folder_ / "a" / "best" / name);
  EXPECT_GT(report.num_bytes, 0);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_FALSE(fs::exists(folder_ / "a" / "checkpoints" / name));
}

TEST_F(BestCheckpointTest, IsMadeAgainAfterAKillBeforeItWasKept) {
  run(watching("a", "smallest", {{"train.steps", "3"}}), 1);
  const auto before = kept("a");
  ASSERT_EQ(before, std::vector<std::string>{"step-000003"}) << "the loss should fall";
  fs::remove_all(folder_ / "a" / "best");
  run(watching("a", "smallest", {{"train.steps", "3"}}), 1);
  EXPECT_EQ(kept("a"), before);
}

// A step that is saved anyway is not saved again with the next one.
TEST_F(BestCheckpointTest, AsksOnlyForItsOwnStep) {
  run(watching("a", "smallest",
               {{"train.steps", "4"},
                {"train.evaluate_interval", "2"},
                {"checkpoint.interval", "2"},
                {"checkpoint.keep", "10"}}),
      1);
  std::vector<std::string> names;
  for (const fs::path& path : checkpoint::list(folder_ / "a" / "checkpoints")) {
    names.push_back(path.filename());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"step-000002", "step-000004"}));
}

TEST_F(BestCheckpointTest, ItsValueIsKeptOverAResume) {
  run(watching("a", "largest", {{"train.steps", "3"}}), 1);
  const auto before = kept("a");
  run(watching("a", "largest", {{"train.steps", "6"}}), 2);
  EXPECT_EQ(kept("a"), before);
}

TEST_F(BestCheckpointTest, AnUnknownMetricIsRefusedBeforeTheRun) {
  const auto message = [&](const RunConfig& config) {
    return harness::message_of<ConfigError>([&] { run(config, 1); });
  };
  EXPECT_EQ(message(watching("a", "smallest", {{"checkpoint.best", "validation_los"}})),
            "checkpoint.best is \"validation_los\", which evaluations do not have; did you mean "
            "\"validation_loss\"?");
  EXPECT_EQ(message(watching("a", "smallest", {{"train.evaluate_interval", "0"}})),
            "checkpoint.best is \"validation_loss\", but this run does not evaluate; set "
            "train.evaluate_interval");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

}  // namespace
}  // namespace trireme::train
