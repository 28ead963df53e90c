#include "trireme/train/metrics/metrics.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/tensorboard.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

StepMetrics metrics_of(int64_t step) {
  return {.step = step, .loss = 1.0 / 3.0 + static_cast<double>(step), .grad_norm = std::sqrt(2.0)};
}

std::vector<int64_t> steps_in(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    steps.push_back(nlohmann::json::parse(line).at("step"));
  }
  return steps;
}

TEST(Metrics, LossAndNormSurviveTheirTextBitForBit) {
  for (const double value : {1.0 / 3.0, std::nextafter(8.3, 9.0), 1e-300, 123456789.123456789}) {
    const auto json =
        nlohmann::json::parse(to_json({.step = 1, .loss = value, .grad_norm = value / 7}));
    EXPECT_EQ(json.at("loss").get<double>(), value);
    EXPECT_EQ(json.at("grad_norm").get<double>(), value / 7);
  }
}

TEST(Metrics, HasTheKeysOfTheContract) {
  const auto json = nlohmann::json::parse(to_json({.step = 4}));
  for (const char* key :
       {"step", "loss", "grad_norm", "learning_rate", "tokens_per_second", "step_seconds",
        "data_seconds", "communication_fraction", "peak_rss_bytes", "gradient_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_FALSE(json.contains("validation_loss"));
  EXPECT_FALSE(json.contains("bad_samples"));
  EXPECT_EQ(nlohmann::json::parse(to_json({.step = 4, .bad_samples = 3})).at("bad_samples"), 3);
  EXPECT_TRUE(nlohmann::json::parse(to_json({.step = 4, .validation_loss = 2.0}))
                  .contains("validation_loss"));
  EXPECT_EQ(
      nlohmann::json::parse(to_json({.step = 4, .lists = {{"tokens/1", {3, 0.1}}}})).at("tokens/1"),
      nlohmann::json::array({3, 0.1}));
}

TEST(Metrics, AResumeCutsWhatLiesPastItsCheckpoint) {
  const harness::TemporaryFolder folder;
  {
    MetricsWriter writer(folder.path(), 0);
    for (int64_t step = 1; step <= 5; ++step) writer.write(metrics_of(step));
  }
  {
    MetricsWriter writer(folder.path(), 3);
    EXPECT_EQ(steps_in(folder / "metrics.jsonl"), (std::vector<int64_t>{1, 2, 3}));
    writer.write(metrics_of(4));
  }
  EXPECT_EQ(steps_in(folder / "metrics.jsonl"), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(Metrics, ALineThatAKillCutShortGoes) {
  const harness::TemporaryFolder folder;
  std::ofstream(folder / "metrics.jsonl") << to_json(metrics_of(1)) << "\n{\"step\": 2, \"lo";
  MetricsWriter writer(folder.path(), 2);
  EXPECT_EQ(steps_in(folder / "metrics.jsonl"), (std::vector<int64_t>{1}));
}

// As a crash of the machine or a stray editor leaves them.
TEST(Metrics, ALineThatCannotBeReadCostsNoOther) {
  for (const std::string broken :
       {"", "nonsense", "{\"step\": 2, \"lo", "[1, 2]", "{\"step\": \"2\"}", "{\"loss\": 2.0}"}) {
    SCOPED_TRACE(broken);
    const harness::TemporaryFolder folder;
    const auto path = folder / "metrics.jsonl";
    std::ofstream(path) << to_json(metrics_of(1)) << "\n"
                        << broken << "\n"
                        << to_json(metrics_of(3)) << "\n"
                        << to_json(metrics_of(4)) << "\n";
    EXPECT_EQ(last_step_in(path), 4);
    const MetricsWriter writer(folder.path(), 3);
    EXPECT_EQ(writer.unreadable_lines(), std::vector<int64_t>{2});
    EXPECT_EQ(read_file(path),
              to_json(metrics_of(1)) + "\n" + broken + "\n" + to_json(metrics_of(3)) + "\n");
  }
}

TEST(Metrics, ALineThatCannotBeReadGoesWithTheStepsAroundIt) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << to_json(metrics_of(1)) << "\n"
                      << to_json(metrics_of(2)) << "\nnonsense\n"
                      << to_json(metrics_of(4)) << "\n";
  const MetricsWriter writer(folder.path(), 2);
  EXPECT_EQ(writer.unreadable_lines(), std::vector<int64_t>{});
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{1, 2}));
}

TEST(Metrics, OnlyWhatAKillCutShortIsCutFromTheEnd) {
  // Whole but for its newline, cut short, or zeros where blocks never reached the disk.
  for (const std::string& end :
       {to_json(metrics_of(2)), std::string("{\"step\": 2"), std::string(3, '\0')}) {
    const harness::TemporaryFolder folder;
    const auto path = folder / "metrics.jsonl";
    std::ofstream(path) << to_json(metrics_of(1)) << "\n" << end;
    MetricsWriter writer(folder.path(), 2);
    EXPECT_EQ(writer.unreadable_lines(), std::vector<int64_t>{});
    writer.write(metrics_of(3));
    const bool is_whole = end.ends_with('}');
    EXPECT_EQ(steps_in(path),
              is_whole ? (std::vector<int64_t>{1, 2, 3}) : (std::vector<int64_t>{1, 3}));
  }
}

TEST(Metrics, WhatIsNestedDeeplyIsALineThatCannotBeRead) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << std::string(1'000'000, '[') << "\n" << to_json(metrics_of(2)) << "\n";
  EXPECT_EQ(last_step_in(path), 2);
  const MetricsWriter writer(folder.path(), 2);
  EXPECT_EQ(writer.unreadable_lines(), std::vector<int64_t>{1});
  std::ofstream(path) << std::string(1'000'000, '\n');
  const auto error = [&] { return harness::message_of<ConfigError>([&] { last_step_in(path); }); };
  EXPECT_NE(error().find("more than 1000 of its lines are not metrics"), std::string::npos);
}

TEST(Metrics, GoOnInANewFileWhenTheirsIsRemovedOrReplaced) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsWriter writer(folder.path(), 0);
  EXPECT_TRUE(writer.write(metrics_of(1)));
  std::filesystem::remove(path);
  EXPECT_FALSE(writer.write(metrics_of(2)));
  EXPECT_TRUE(writer.write(metrics_of(3)));
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{2, 3}));
  write_file_atomically(path, to_json(metrics_of(2)) + "\n");  // as an editor does
  EXPECT_FALSE(writer.write(metrics_of(4)));
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{2, 4}));
}

TEST(Metrics, DoNotFollowAnotherFolderToTheirPlace) {
  const harness::TemporaryFolder folder;
  const auto run = folder / "run", moved = folder / "moved";
  std::filesystem::create_directory(run);
  MetricsWriter writer(run, 0);
  writer.write(metrics_of(1));
  std::filesystem::rename(run, moved);
  EXPECT_TRUE(writer.write(metrics_of(2)));
  std::filesystem::create_directory(run);
  EXPECT_TRUE(writer.write(metrics_of(3)));
  EXPECT_TRUE(std::filesystem::is_empty(run));
  EXPECT_EQ(steps_in(moved / "metrics.jsonl"), (std::vector<int64_t>{1, 2, 3}));
}

StepMetrics metrics_of(int64_t step, int64_t epoch) {
  StepMetrics metrics = metrics_of(step);
  metrics.epoch = epoch;
  return metrics;
}

std::string lines_of(const std::vector<StepMetrics>& all) {
  std::string text;
  for (const StepMetrics& each : all) text += to_json(each) + "\n";
  return text;
}

TEST(Metrics, SayTheirEpochWhenThereIsOne) {
  EXPECT_EQ(to_json(metrics_of(1)).find("epoch"), std::string::npos);
  EXPECT_NE(to_json(metrics_of(1, 3)).find(", \"epoch\": 3}"), std::string::npos);
}

// A rank of epoch 1 was stopped before its lines of steps 4 to 7, and went on in epoch 2.
TEST(Metrics, OfEachStepOnlyTheHighestEpochCounts) {
  const std::vector<StepMetrics> all{
      metrics_of(1, 1), metrics_of(2, 1), metrics_of(3, 1), metrics_of(3, 2), metrics_of(4, 1),
      metrics_of(4, 2), metrics_of(5, 1), metrics_of(5, 2), metrics_of(6, 1), metrics_of(7, 1)};
  const std::string text = lines_of(all);
  const std::vector<std::string_view> counted = counted_lines(text);
  const std::string expected = lines_of(
      {metrics_of(1, 1), metrics_of(2, 1), metrics_of(3, 2), metrics_of(4, 2), metrics_of(5, 2)});
  std::string joined;
  for (const std::string_view line : counted) joined += std::string(line) + "\n";
  EXPECT_EQ(joined, expected);
  const harness::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << text;
  EXPECT_EQ(last_step_in(path), 5);
  EXPECT_EQ(newest_epoch_in(path), 2);
}

TEST(Metrics, ARunThatGoesOnDropsLinesOfEarlierEpochs) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsWriter stale(folder.path(), 0);
  stale.write(metrics_of(1, 1));
  stale.write(metrics_of(2, 1));
  {
    MetricsWriter next(folder.path(), 1);
    next.write(metrics_of(2, 2));
    stale.write(metrics_of(2, 1));  // into the file that the next one has made
    stale.write(metrics_of(3, 1));
    next.write(metrics_of(3, 2));
  }
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{1, 2, 2, 3, 3}));
  const MetricsWriter last(folder.path(), 3);
  EXPECT_EQ(read_file(path), lines_of({metrics_of(1, 1), metrics_of(2, 2), metrics_of(3, 2)}));
}

TEST(Metrics, OfTensorBoardsStepsThoseOfARunThatWentOnCount) {
  const harness::TemporaryFolder folder;
  const auto loss = [](double value) {
    return [value](int64_t step) { return StepMetrics{.step = step, .loss = value}; };
  };
  const auto paused = loss(1), later = loss(2);
  MetricsWriter first(folder.path(), 0);
  for (const int step : {1, 2, 3}) first.write(paused(step));
  MetricsWriter second(folder.path(), 1);
  second.write(later(2));
  first.write(paused(4));
  second.write(later(3));
  EXPECT_EQ(read_with_tensorboard(folder / "tensorboard").at("scalars").at("loss"),
            nlohmann::json::parse("[[1, 1.0], [2, 2.0], [3, 2.0]]"));
}

TEST(Metrics, TensorBoardGetsTimesMemoryAndOtherScalars) {
  const harness::TemporaryFolder folder;
  MetricsWriter writer(folder.path(), 0);
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  writer.write(1, std::vector<Scalar>{{"communication_seconds/data", 0.25}, {"other", unknown}});
  writer.write(StepMetrics{
      .step = 1, .step_seconds = 0.5, .peak_rss_bytes = 4096, .memory_weights_bytes = 1024});
  const nlohmann::json scalars = read_with_tensorboard(folder / "tensorboard").at("scalars");
  EXPECT_EQ(scalars.at("step_seconds"), nlohmann::json::parse("[[1, 0.5]]"));
  EXPECT_EQ(scalars.at("peak_rss_bytes"), nlohmann::json::parse("[[1, 4096.0]]"));
  EXPECT_EQ(scalars.at("memory_weights_bytes"), nlohmann::json::parse("[[1, 1024.0]]"));
  EXPECT_EQ(scalars.at("communication_seconds/data"), nlohmann::json::parse("[[1, 0.25]]"));
  EXPECT_FALSE(scalars.contains("other"));
  EXPECT_FALSE(scalars.contains("memory_other_bytes"));
}

TEST(Metrics, TheLastStepOfNoFileIs0) {
  const harness::TemporaryFolder folder;
  EXPECT_EQ(last_step_in(folder / "metrics.jsonl"), 0);
}

}  // namespace
}  // namespace trireme::train
