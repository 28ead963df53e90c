#include "trireme/train/callbacks/step_examination.h"

#include <functional>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/callbacks/fake_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

using nlohmann::json;

class StepExaminationTest : public testing::Test {
 protected:
  StepExaminationTest() { run_.folder_ = folder_.path(); }

  json report() const { return json::parse(read_file(examined_file(folder_.path(), 0))); }

  // Two steps: `work` is done in the second.
  void run(StepExamination& callback, const std::function<void()>& work) {
    run_.metrics_.step = 0;
    callback.on_start(run_);
    static_cast<void>(at::zeros({1}).log());  // an infinity in the step before
    run_.metrics_.step = 1;
    callback.on_step(run_);
    work();
    run_.metrics_.step = 2;
    callback.on_step(run_);
  }

  harness::TemporaryFolder folder_;
  FakeRun run_;
};

TEST_F(StepExaminationTest, KeepsTheOperatorAndItsInputs) {
  StepExamination callback;
  set_keys(callback, {{"examine.step", 2}});
  EXPECT_TRUE(callback.is_on());
  run(callback, [] { static_cast<void>(at::full({3}, -1.0).log()); });
  const json found = report().at("finding");
  EXPECT_EQ(found.at("what"), "nan");
  EXPECT_EQ(found.at("operator"), "aten::log");
  EXPECT_EQ(found.at("inputs").at(0).at("minimum"), -1);
  const checkpoint::SafetensorsReader inputs(examined_inputs(folder_.path(), 0));
  EXPECT_TRUE(at::equal(inputs.read("input.0"), at::full({3}, -1.0)));
  EXPECT_EQ(inputs.metadata().at("operator"), "aten::log");
  EXPECT_NE(run_.stop_reason_.find("examine.step"), std::string::npos);
  EXPECT_FALSE(run_.for_good_);
}

TEST_F(StepExaminationTest, SaysThatNothingWasFound) {
  StepExamination callback;
  set_keys(callback, {{"examine.step", 2}});
  run(callback, [] { static_cast<void>(at::full({3}, 2.0).log()); });
  EXPECT_FALSE(report().contains("finding"));
  EXPECT_GT(report().at("operators"), 0);
  EXPECT_FALSE(std::filesystem::exists(examined_inputs(folder_.path(), 0)));
}

// A step with a loss of NaN may end the run before on_step().
TEST_F(StepExaminationTest, WritesWhatItHasFoundBeforeTheUpdate) {
  StepExamination callback;
  set_keys(callback, {{"examine.step", 1}});
  callback.on_start(run_);
  static_cast<void>(at::full({3}, -1.0).sqrt());
  EXPECT_TRUE(callback.wants_gradients(1));
  EXPECT_FALSE(callback.wants_gradients(2));
  callback.on_gradients(run_);
  EXPECT_EQ(report().at("finding").at("operator"), "aten::sqrt");
}

TEST_F(StepExaminationTest, ASpikeNeedsTheStepBefore) {
  StepExamination callback;
  set_keys(callback, {{"examine.step", 1}, {"examine.spike", 10}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { callback.on_start(run_); }),
              testing::HasSubstr("earlier checkpoint"));
  StepExamination alone;
  set_keys(alone, {{"examine.spike", 10}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { alone.check(run_.config_, {}); }),
              testing::HasSubstr("examine.step"));
}

TEST_F(StepExaminationTest, AStepThatIsDoneIsRefused) {
  StepExamination callback;
  set_keys(callback, {{"examine.step", 2}});
  run_.metrics_.step = 2;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { callback.on_start(run_); }),
              testing::HasSubstr("expected a later step"));
}

TEST_F(StepExaminationTest, IsOffByDefaultAndACopyHasItsKeys) {
  StepExamination callback;
  EXPECT_FALSE(callback.is_on());
  set_keys(callback, {{"examine.step", 2}});
  EXPECT_TRUE(callback.clone()->is_on());
}

}  // namespace
}  // namespace trireme::train
