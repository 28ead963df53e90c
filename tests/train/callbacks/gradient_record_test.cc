#include "trireme/train/callbacks/gradient_record.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/callbacks/activation_record.h"

namespace trireme::train {
namespace {

class GradientRecordTest : public TextRun {
 protected:
  std::map<std::string, at::Tensor> record(const std::string& name, int64_t step) const {
    return checkpoint::load_global(folder_ / name / kGradientFolder /
                                   checkpoint::folder_name(step));
  }
};

TEST_F(GradientRecordTest, HasEveryTrainedParameterBeforeClipping) {
  for (const int num_ranks : {1, 2, 3}) {
    const std::string name = concat("ranks", num_ranks);
    run(config(name, {{"record.gradients", "2"},
                      {"train.global_batch", "12"},
                      {"train.gradient_clip", "1e-3"},
                      {"train.precision", "fp64"}}),
        num_ranks);
    for (const int64_t step : {1, 2}) {
      double squares = 0;
      const auto gradients = record(name, step);
      for (const auto& [parameter, gradient] : gradients) {
        squares += gradient.square().sum().item<double>();
      }
      const double norm = metrics(name)[static_cast<size_t>(step - 1)].at("grad_norm");
      EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
      EXPECT_GT(gradients.size(), 10U);
    }
    EXPECT_FALSE(
        std::filesystem::exists(folder_ / name / kGradientFolder / checkpoint::folder_name(3)));
    EXPECT_EQ(metrics(name).size(), 6U);
  }
}

// Every stage of ZeRO has the bits of every other, and so has its record.
TEST_F(GradientRecordTest, AShardedRunRecordsTheSameBits) {
  for (const char* zero : {"0", "3"}) {
    run(config(concat("zero", zero), {{"record.gradients", "1"},
                                      {"parallel.zero", zero},
                                      {"parallel.gradient_order", "rank-first"}}),
        2);
  }
  const auto whole = record("zero0", 1), sharded = record("zero3", 1);
  ASSERT_EQ(whole.size(), sharded.size());
  for (const auto& [parameter, gradient] : whole) {
    EXPECT_TRUE(at::equal(gradient, sharded.at(parameter))) << parameter;
  }
}

// Before the first exchange learners have the weights of a run without them, and each has the mean
// gradient of its half of the samples.
TEST_F(GradientRecordTest, EachLearnerHasARecordOfItsOwn) {
  const std::vector<Override> common = {{"record.gradients", "2"},
                                        {"record.activations", "1"},
                                        {"record.end", "true"},
                                        {"train.precision", "fp64"}};
  run(config("whole", common), 1);
  for (const int num_ranks : {2, 4}) {
    const std::string name = concat("learners", num_ranks);
    std::vector<Override> settings = common;
    settings.insert(settings.end(), {{"parallel.learners", "2"}, {"outer.every", "4"}});
    run(config(name, settings), num_ranks);
    EXPECT_EQ(metrics(name).size(), 2U);
    EXPECT_FALSE(std::filesystem::exists(folder_ / name / kGradientFolder));
    const auto part = [&](int learner, const char* kind, int64_t step) {
      return folder_of_learner(folder_ / name, learner) / kind / checkpoint::folder_name(step);
    };
    const auto first = checkpoint::load_global(part(0, kGradientFolder, 1));
    const auto second = checkpoint::load_global(part(1, kGradientFolder, 1));
    for (const auto& [parameter, gradient] : record("whole", 1)) {
      const at::Tensor mean = (first.at(parameter) + second.at(parameter)) / 2;
      EXPECT_TRUE(at::allclose(mean, gradient, 1e-11, 1e-14)) << parameter;
      EXPECT_FALSE(at::allclose(first.at(parameter), gradient, 1e-6, 1e-9)) << parameter;
    }
    const auto whole =
        checkpoint::load_global(folder_ / "whole" / kActivationFolder / checkpoint::folder_name(1));
    const at::Tensor halves =
        at::cat({checkpoint::load_global(part(0, kActivationFolder, 1)).at("norm"),
                 checkpoint::load_global(part(1, kActivationFolder, 1)).at("norm")});
    EXPECT_TRUE(at::allclose(halves, whole.at("norm"), 1e-11, 1e-14));
    const nlohmann::json numbers = nlohmann::json::parse(
        checkpoint::inspect(part(0, kGradientFolder, 2)).state)[kRecordedNumbers];
    EXPECT_EQ(numbers.at("loss"), metrics(name)[1].at("loss"));
    EXPECT_EQ(numbers.at("grad_norm"), metrics(name)[1].at("grad_norm"));
  }
}

// Decoupled ones leave rounds and steps in an order of their own.
TEST_F(GradientRecordTest, LearnersThatAreNotInStepHaveNone) {
  RunConfig learning = config("run", {{"record.gradients", "1"},
                                      {"parallel.learners", "2"},
                                      {"parallel.servers", "1"},
                                      {"outer.method", "decoupled"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { resolve(learning, 3); }),
              testing::HasSubstr("the callback record"));
}

TEST_F(GradientRecordTest, EndsTheRunOnlyWhenAsked) {
  run(config("short", {{"record.gradients", "2"}, {"record.end", "true"}}), 1);
  EXPECT_EQ(metrics("short").size(), 2U);
  const auto whole = config("whole");
  run(whole, 1);
  EXPECT_EQ(metrics("short")[1].at("learning_rate"), metrics("whole")[1].at("learning_rate"));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                run(config("wrong", {{"record.end", "true"}}), 1);
              }),
              testing::HasSubstr("record.gradients"));
}

}  // namespace
}  // namespace trireme::train
