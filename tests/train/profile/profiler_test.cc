#include "trireme/train/profile/profiler.h"

#include <algorithm>
#include <fstream>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::train {
namespace {

// A step of matrix products and a call.
void run_step(Profiler* profiler, int64_t step, comm::Communicator& world) {
  StepScope scope(profiler, step);
  scope.enter(Phase::kForwardBackward);
  const at::Tensor product = at::ones({64, 64}).mm(at::ones({64, 64}));
  scope.enter(Phase::kExchange);
  world.all_reduce(product)->wait();
}

std::string error_of(const ProfileOptions& options, int64_t next_step, int64_t last_step) {
  try {
    check_profile(options, next_step, last_step);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class ProfilerTest : public ::testing::Test {
 protected:
  // Runs steps 11 to `last_step` of a run that ends there.
  std::optional<ProfileReport> profile(const ProfileOptions& options, int64_t last_step) {
    const auto groups = comm::make_thread_group(1, {.recorder = recorder_});
    comm::Communicator& world = *groups[0];
    ProfileOptions with_calls = options;
    with_calls.recorder = recorder_;
    Profiler profiler(with_calls, 11, world);
    std::optional<ProfileReport> report;
    for (int64_t step = 11; step <= last_step; ++step) {
      run_step(&profiler, step, world);
      if (!profiler.is_due(step == last_step)) continue;
      EXPECT_FALSE(report);
      report = profiler.finish(path_);
    }
    return report;
  }

  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "new" / "trace.json";
  std::shared_ptr<comm::Recorder> recorder_ =
      std::make_shared<comm::Recorder>(comm::RecorderOptions{});
};

TEST_F(ProfilerTest, ProfilesTheStepsAfterTheWarmUp) {
  const auto report = profile({.num_steps = 2, .warmup_steps = 3}, 20);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->first_step, 14);
  EXPECT_EQ(report->last_step, 15);
  EXPECT_EQ(report->trace, path_);
  EXPECT_GT(report->slowdown, 0);
  ASSERT_EQ(report->calls.size(), 1u);
  EXPECT_EQ(report->calls[0].operation, "all_reduce");
  EXPECT_EQ(report->calls[0].count, 2);
  EXPECT_EQ(report->calls[0].bytes, 2 * 64 * 64 * 4);
  const auto product = std::ranges::find(report->operators, "aten::mm", &OperatorTotals::name);
  ASSERT_NE(product, report->operators.end());
  EXPECT_EQ(product->count, 2);
  std::ifstream file(path_);
  EXPECT_FALSE(nlohmann::json::parse(file).at("traceEvents").empty());
}

TEST_F(ProfilerTest, ARunThatEndsEarlierGivesTheStepsThereWere) {
  const auto report = profile({.num_steps = 5, .warmup_steps = 0}, 12);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->first_step, 11);
  EXPECT_EQ(report->last_step, 12);
  EXPECT_EQ(report->slowdown, 0);
}

TEST_F(ProfilerTest, ARunThatEndsInTheWarmUpGivesNone) {
  EXPECT_FALSE(profile({.num_steps = 5, .warmup_steps = 4}, 13));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ProfilerTest, AFailureInAStepLeavesNothingRunning) {
  const auto groups = comm::make_thread_group(1, {});
  {
    Profiler profiler({.num_steps = 2, .warmup_steps = 0}, 1, *groups[0]);
    EXPECT_THROW(
        {
          const StepScope scope(&profiler, 1);
          throw ConfigError("the loss is NaN");
        },
        ConfigError);
  }
  EXPECT_TRUE(profile({.num_steps = 1, .warmup_steps = 0}, 11));
}

TEST_F(ProfilerTest, AFileThatCannotBeWrittenIsNamed) {
  std::ofstream(folder_ / "file") << "";
  path_ = folder_ / "file" / "trace.json";
  try {
    profile({.num_steps = 1, .warmup_steps = 0}, 11);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file"), std::string::npos) << error.what();
  }
}

// Nor is a profiler that another step needs disturbed.
TEST(StepScope, WithoutAProfilerRecordsNothing) {
  const auto groups = comm::make_thread_group(1, {});
  run_step(nullptr, 1, *groups[0]);
  EXPECT_FALSE(at::hasCallbacks());
  Profiler profiler({.num_steps = 1, .warmup_steps = 0}, 1, *groups[0]);
  {
    const StepScope scope(&profiler, 1);
    EXPECT_TRUE(at::hasCallbacks());
    run_step(nullptr, 2, *groups[0]);
    EXPECT_TRUE(at::hasCallbacks());
  }
}

TEST(CheckProfile, NeedsAStepAfterTheWarmUp) {
  EXPECT_EQ(error_of({}, 1, 0), "");
  EXPECT_EQ(error_of({.num_steps = 3, .warmup_steps = 5}, 1, 6), "");
  const std::string error = error_of({.num_steps = 3, .warmup_steps = 5}, 16, 20);
  for (const char* words : {"5 steps are left", "train.steps = 20", "--profile-warmup"}) {
    EXPECT_NE(error.find(words), std::string::npos) << error;
  }
  EXPECT_NE(error_of({.num_steps = 3, .warmup_steps = 0}, 21, 20), "");
  EXPECT_NE(error_of({.num_steps = -1}, 1, 20), "");
  EXPECT_NE(error_of({.num_steps = 1, .warmup_steps = -1}, 1, 20), "");
}

}  // namespace
}  // namespace trireme::train
