#include "trireme/cli/train/prediction_file.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/text_run.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

class PredictionFileTest : public train::TextRun {};

TEST_F(PredictionFileTest, NumbersHaveTheNamesOfTheMetrics) {
  train::RunConfig run = config("run");
  train::resolve(run, 1);
  const nlohmann::json found = nlohmann::json::parse(
      prediction_text(run, {.step_seconds = 0.5, .memory = BytesByKind{1, 2, 3}}));
  const auto& traits = run.task->traits();
  EXPECT_EQ(found["step_seconds"], 0.5);
  EXPECT_EQ(found[traits.unit + "_per_second"],
            2.0 * static_cast<double>(run.train.global_batch * traits.units_per_sample));
  EXPECT_EQ(found["memory_gradients_bytes"], 2);
}

TEST_F(PredictionFileTest, AnOlderFileGoesWhenNothingIsPredicted) {
  train::RunConfig run = config("run");
  train::resolve(run, 1);
  std::filesystem::create_directories(run.output.folder);
  const std::filesystem::path path = std::filesystem::path(run.output.folder) / kPredictionName;
  write_prediction(run, {.step_seconds = 1});
  EXPECT_TRUE(is_file(path));
  write_prediction(run, {});
  EXPECT_FALSE(is_file(path));
  run.output.folder = "/proc/none";
  EXPECT_NO_THROW(write_prediction(run, {.step_seconds = 1}));
}

}  // namespace
}  // namespace trireme::cli
