// Bad samples and last batches in whole runs.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/train/points_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SamplesRunTest : public PointsRun {};

std::vector<int64_t> bad_samples(const std::vector<nlohmann::json>& lines) {
  std::vector<int64_t> counts;
  for (const nlohmann::json& line : lines) counts.push_back(line.at("bad_samples"));
  return counts;
}

TEST_F(SamplesRunTest, BadSamplesAreReplacedAndCountedAlikeInEveryLayout) {
  const std::vector<Override> some_bad = {{"points.bad_every", "9"},
                                          {"data.skip_bad_samples", "20"}};
  const auto with = [&](const std::string& name, std::vector<Override> overrides) {
    overrides.insert(overrides.end(), some_bad.begin(), some_bad.end());
    return config(name, overrides);
  };
  run(with("one", {}), 1);
  const std::vector<int64_t> counts = bad_samples(metrics("one"));
  // Points 1, 10, 19, 28, 37: each once in the first epoch, which five steps are.
  ASSERT_EQ(counts.size(), 6U);
  EXPECT_EQ(counts[4], 5);
  ASSERT_EQ(findings_.size(), 2U);
  EXPECT_THAT(findings_, ::testing::Each(HasSubstr("data.skip_bad_samples allows 20: point ")));
  EXPECT_THAT(findings_, ::testing::Contains(HasSubstr("evaluation: a sample cannot be read")));
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"two", 2, {{"data.workers", "0"}}},
      {"uneven", 3, {{"train.uneven_batches", "true"}}},
      {"four", 4, {{"parallel.zero", "3"}, {"train.micro_batch", "1"}}},
      {"pipeline", 4, {{"parallel.pipeline", "2"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    run(with(name, overrides), num_ranks);
    expect_same(name, "one", 1e-10);
    EXPECT_EQ(bad_samples(metrics(name)), counts) << name;
    EXPECT_EQ(findings_.size(), 2U) << name;
  }
  run(with("cut", {}), 1, /*stop_after=*/3);
  run(with("cut", {}), 1);
  expect_same("cut", "one", 0);
  EXPECT_EQ(bad_samples(metrics("cut")), counts);
}

TEST_F(SamplesRunTest, TooManyBadSamplesEndARun) {
  for (const int num_ranks : {1, 2, 4}) {
    EXPECT_THAT(refusal({{"points.bad_every", "9"},
                         {"data.skip_bad_samples", "3"},
                         {"train.evaluate_interval", "0"}},
                        num_ranks),
                HasSubstr("data.skip_bad_samples is 3 and 5 samples cannot be read; the last: "
                          "point 37 is damaged; repair or remove such files"));
  }
  EXPECT_THAT(refusal({{"points.bad_every", "9"}}), HasSubstr(" is damaged"));
  // 40 points, of which the evaluation reads all.
  EXPECT_THAT(refusal({{"points.bad_every", "9"},
                       {"data.skip_bad_samples", "4"},
                       {"train.global_batch", "2"},
                       {"train.evaluate_interval", "1"}}),
              HasSubstr("data.skip_bad_samples is 4 and 5 samples"));
}

TEST_F(SamplesRunTest, AnEpochsLastBatchIsKeptOrDroppedInEveryLayout) {
  for (const std::string last_batch : {"keep", "drop"}) {
    const auto with = [&](const std::string& name, std::vector<Override> overrides) {
      overrides.insert(overrides.begin(), {{"data.last_batch", last_batch},
                                           {"train.global_batch", "12"},
                                           {"train.micro_batch", "3"},
                                           {"train.steps", "10"}});
      return config(name + last_batch, overrides);
    };
    run(with("one", {}), 1);
    // 40 points are three batches of twelve and four more.
    const auto lines = metrics("one" + last_batch);
    ASSERT_EQ(lines.size(), 10U);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(lines[i].at("count").get<double>(), last_batch == "keep" && i % 4 == 3 ? 4 : 12)
          << i;
    }
    const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
        {"two", 2, {}},
        {"three", 3, {{"train.micro_batch", "1"}, {"parallel.zero", "2"}}},
        {"four", 4, {{"parallel.zero", "3"}}},
        {"uneven", 4, {{"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}},
        {"pipeline", 4, {{"parallel.pipeline", "2"}}}};
    for (const auto& [name, num_ranks, overrides] : layouts) {
      run(with(name, overrides), num_ranks);
      expect_same(name + last_batch, "one" + last_batch, 1e-10);
    }
    run(with("cut", {}), 1, /*stop_after=*/4);
    run(with("cut", {}), 1);
    expect_same("cut" + last_batch, "one" + last_batch, 0);
  }
}

TEST_F(SamplesRunTest, LastBatchesThatCannotBeAreRefused) {
  EXPECT_THAT(refusal({{"data.last_batch", "drop"}, {"train.global_batch", "42"}}),
              HasSubstr("data.last_batch is \"drop\" and the training data has 40 samples, fewer "
                        "than train.global_batch = 42"));
  EXPECT_THAT(refusal({{"data.last_batch", "keep"}, {"train.measure_noise", "true"}}),
              HasSubstr("data.last_batch is \"keep\""));
  run(config("run", {{"train.steps", "2"}}), 1);
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                run(config("run", {{"data.last_batch", "keep"}}), 1);
              }),
              HasSubstr("data.last_batch"));
}

}  // namespace
}  // namespace trireme::train
