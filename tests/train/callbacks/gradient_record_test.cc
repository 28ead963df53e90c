#include "trireme/train/callbacks/gradient_record.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

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
