#include "trireme/train/callbacks/weight_average.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "tests/harness/tensors.h"
#include "tests/train/text_run.h"

namespace trireme::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;
constexpr double kDecay = 0.8;

class WeightAverageTest : public TextRun {
 protected:
  static std::vector<Override> with_average(std::vector<Override> overrides = {}) {
    overrides.insert(overrides.begin(), {{"average.decay", "0.8"}, {"checkpoint.keep", "100"}});
    return overrides;
  }

  Tensors tensors(const std::string& run, int step) const {
    return checkpoint::load_global(folder_ / run / "checkpoints" / concat("step-00000", step));
  }

  // The averages of a checkpoint, or with prefix "" its weights.
  static Tensors averages(const Tensors& all) {
    const std::string prefix = "callback.average.";
    Tensors found;
    for (const auto& [name, tensor] : all) {
      if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
    }
    return found;
  }

  static void expect_same(const Tensors& actual, const Tensors& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      harness::assert_same_bits(actual.at(name), tensor, name);
    }
  }
};

TEST_F(WeightAverageTest, FollowsTheFormulaAtEveryStep) {
  run(config("a", with_average({{"checkpoint.interval", "1"}, {"average.start", "1"}})), 1);
  Tensors expected;
  for (int step = 2; step <= 6; ++step) {
    const Tensors all = tensors("a", step);
    const double n = step - 2;
    const double decay = std::min(kDecay, (1 + n) / (10 + n));
    for (const auto& [name, average] : averages(all)) {
      const at::Tensor& weights = all.at(name);
      expected[name] = step == 2 ? weights : expected[name].lerp(weights, 1 - decay);
      harness::assert_same_bits(average, expected[name], concat(name, " of step ", step));
    }
  }
  EXPECT_EQ(averages(tensors("a", 6)).size(), expected.size());
  EXPECT_GT(expected.size(), 10U);
}

TEST_F(WeightAverageTest, IsTheSameBitsAtEveryZeroStageAndAfterAResume) {
  const Override order = {"parallel.gradient_order", "rank-first"};
  run(config("ddp", with_average({order})), 2);
  const Tensors expected = averages(tensors("ddp", 6));
  for (const char* zero : {"1", "2", "3"}) {
    run(config(concat("zero", zero), with_average({{"parallel.zero", zero}, order})), 2);
    expect_same(averages(tensors(concat("zero", zero), 6)), expected);
  }
  // Saved as a whole, resumed in shards.
  run(config("resumed", with_average({{"train.steps", "4"}})), 2);
  run(config("resumed", with_average({{"train.steps", "6"}, {"parallel.zero", "3"}})), 2);
  Tensors whole = averages(tensors("resumed", 6));
  run(config("whole", with_average({{"train.steps", "4"}})), 2);
  run(config("whole", with_average({{"train.steps", "6"}})), 2);
  expect_same(whole, averages(tensors("whole", 6)));
}

TEST_F(WeightAverageTest, FitsPipelineAndTensorRanks) {
  run(config("one", with_average({{"train.precision", "fp64"}})), 1);
  const Tensors expected = averages(tensors("one", 6));
  for (const char* axis : {"tensor", "pipeline"}) {
    run(config(axis, with_average({{"train.precision", "fp64"}, {concat("parallel.", axis), "2"}})),
        2);
    const Tensors actual = averages(tensors(axis, 6));
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(at::allclose(actual.at(name), tensor, 1e-10, 1e-12)) << axis << " " << name;
    }
  }
}

// Evaluating the average leaves the run as it is without one.
TEST_F(WeightAverageTest, IsEvaluatedBesideTheWeights) {
  const std::vector<Override> evaluates = {{"train.evaluate_interval", "2"},
                                           {"train.evaluate_sequences", "8"},
                                           {"parallel.gradient_order", "microbatch-first"}};
  for (const char* zero : {"0", "3"}) {
    std::vector<Override> overrides = evaluates;
    overrides.push_back({"parallel.zero", zero});
    run(config(concat("plain", zero), overrides), 2);
    run(config(concat("average", zero), with_average(overrides)), 2);
    const auto plain = metrics(concat("plain", zero));
    const auto average = metrics(concat("average", zero));
    ASSERT_EQ(plain.size(), average.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(plain[i].at("loss"), average[i].at("loss"));
      EXPECT_EQ(average[i].contains("average_validation_loss"), i % 2 == 1);
    }
    EXPECT_NE(average.back().at("average_validation_loss"), average.back().at("validation_loss"));
  }
  EXPECT_EQ(metrics("average0").back().at("average_validation_loss"),
            metrics("average3").back().at("average_validation_loss"));
}

TEST_F(WeightAverageTest, ACheckpointWithoutItIsResumedWithIt) {
  run(config("a", {{"train.steps", "4"}}), 1);
  run(config("a", with_average()), 1);
  const Tensors all = tensors("a", 6);
  EXPECT_GT(averages(all).size(), 10U);
  // And with it, without.
  run(config("a", {{"train.steps", "8"}}), 1);
  EXPECT_TRUE(averages(tensors("a", 8)).empty());
}

}  // namespace
}  // namespace trireme::train
