#include "trireme/train/metrics.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file.h"

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
        "communication_fraction", "peak_rss_bytes", "gradient_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_FALSE(json.contains("validation_loss"));
  EXPECT_TRUE(nlohmann::json::parse(to_json({.step = 4, .validation_loss = 2.0}))
                  .contains("validation_loss"));
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

}  // namespace
}  // namespace trireme::train
