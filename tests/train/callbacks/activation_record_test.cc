#include "trireme/train/callbacks/activation_record.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/train/callbacks/fake_run.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::train {
namespace {

using Settings = std::vector<Override>;
using testing::HasSubstr;

const Settings kSparse = {{"model.experts", "4"}, {"model.experts_per_token", "2"}};

class ActivationRecordTest : public TextRun {
 protected:
  std::filesystem::path step_of(const std::string& name, int64_t step) const {
    return folder_ / name / kActivationFolder / checkpoint::folder_name(step);
  }
  std::map<std::string, at::Tensor> record(const std::string& name, int64_t step = 1) const {
    return checkpoint::load_global(step_of(name, step));
  }
  nlohmann::json state(const std::string& name) const {
    return nlohmann::json::parse(checkpoint::inspect(step_of(name, 1)).state);
  }
  // In fp64, for one step.
  void run_recorded(const std::string& name, Settings settings, int num_ranks) {
    settings.insert(settings.begin(), {{"record.activations", "1"},
                                       {"train.precision", "fp64"},
                                       {"train.steps", "1"},
                                       {"optimizer.warmup_steps", "1"}});
    run(config(name, settings), num_ranks);
  }
  // Whether the run has the probes of "plain", up to rounding.
  void expect_same(const std::string& name, double tolerance = 1e-10) const {
    const auto plain = record("plain"), other = record(name);
    EXPECT_EQ(state(name).at(kRecordedProbes), state("plain").at(kRecordedProbes));
    EXPECT_TRUE(state(name).at(kDifferingProbes).empty()) << state(name);
    EXPECT_TRUE(state(name).at(kPartialProbes).empty()) << state(name);
    ASSERT_EQ(plain.size(), other.size());
    for (const auto& [probe, values] : plain) {
      ASSERT_TRUE(other.contains(probe)) << probe;
      ASSERT_EQ(other.at(probe).sizes(), values.sizes()) << probe;
      const double off = (other.at(probe) - values).abs().max().item<double>();
      EXPECT_LE(off, tolerance * values.abs().max().item<double>()) << name << ", " << probe;
    }
  }
};

TEST_F(ActivationRecordTest, HasTheBoundariesOfUnitsInTheOrderOfForward) {
  run_recorded("plain", {}, 1);
  EXPECT_EQ(
      state("plain").at(kRecordedProbes),
      (std::vector<std::string>{"embedding", "model.layers.0.attention", "model.layers.0",
                                "model.layers.1.attention", "model.layers.1", "norm", "loss"}));
  const auto found = record("plain");
  EXPECT_EQ(found.size(), 6 * 2U + 1);
  EXPECT_EQ(found.at("model.layers.1").sizes(), (std::vector<int64_t>{8 * 16, 16}));
  EXPECT_EQ(found.at("model.layers.1@gradient").sizes(), (std::vector<int64_t>{8 * 16, 16}));
  EXPECT_EQ(found.at("loss").sizes(), (std::vector<int64_t>{8 * 16, 1}));
  const double mean = found.at("loss").sum().item<double>() / (8 * 16);
  EXPECT_NEAR(metrics("plain")[0].at("loss"), mean, 1e-12);
  // Nothing of it stays but the record.
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_ / "plain" / kActivationFolder)) {
    EXPECT_EQ(entry.path(), step_of("plain", 1));
  }
}

TEST_F(ActivationRecordTest, EveryLayoutHasTheSameProbes) {
  run_recorded("plain", {}, 1);
  const std::pair<int, Settings> layouts[] = {
      {1, {{"train.micro_batch", "8"}}},
      {1, {{"train.recompute", "full"}}},
      {1, {{"train.recompute", "selective"}}},
      {2, {}},
      {2, {{"parallel.zero", "3"}}},
      {2, {{"parallel.tensor", "2"}}},
      {2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {2, {{"parallel.context", "2"}}},
      {2, {{"parallel.pipeline", "2"}}},
      {4,
       {{"parallel.tensor", "2"},
        {"parallel.context", "2"},
        {"parallel.sequence_parallel", "true"}}},
      {4, {{"parallel.tensor", "2"}, {"parallel.zero", "3"}, {"train.recompute", "full"}}}};
  int number = 0;
  for (const auto& [num_ranks, settings] : layouts) {
    const std::string name = concat("layout", ++number);
    run_recorded(name, settings, num_ranks);
    expect_same(name);
  }
}

TEST_F(ActivationRecordTest, RoutersHaveLogitsAndChoices) {
  run_recorded("plain", kSparse, 1);
  const auto found = record("plain");
  EXPECT_EQ(found.at("model.layers.0.router").sizes(), (std::vector<int64_t>{8 * 16, 4}));
  EXPECT_EQ(found.at("model.layers.0.router@choices").sizes(), (std::vector<int64_t>{8 * 16, 2}));
  // Ranks of the tensor axis have parts of it.
  EXPECT_FALSE(found.contains("model.layers.0.router@gradient"));
  const Settings layouts[] = {{{"parallel.expert", "2"}},
                              {{"parallel.tensor", "2"}},
                              {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}},
                              {{"parallel.context", "2"}, {"train.recompute", "full"}}};
  int number = 0;
  for (const Settings& layout : layouts) {
    Settings split = kSparse;
    split.insert(split.end(), layout.begin(), layout.end());
    const std::string name = concat("split", ++number);
    run_recorded(name, split, 2);
    expect_same(name);
  }
}

TEST_F(ActivationRecordTest, RoutersRepeatTheChoicesOfAnotherRun) {
  run_recorded("plain", kSparse, 1);
  // Other weights choose otherwise, but go on with the choices of the first run.
  Settings other = kSparse;
  other.push_back({"train.seed", "9"});
  run_recorded("own", other, 1);
  other.push_back({"record.choices", (folder_ / "plain").string()});
  run_recorded("repeats", other, 1);
  const auto plain = record("plain"), own = record("own"), repeats = record("repeats");
  const std::string first = "model.layers.0.router@choices";
  EXPECT_FALSE(at::equal(plain.at(first), own.at(first)));
  EXPECT_TRUE(at::equal(repeats.at(first), own.at(first)));  // its own are kept
  EXPECT_TRUE(
      at::equal(repeats.at("model.layers.0.attention"), own.at("model.layers.0.attention")));
  EXPECT_FALSE(at::equal(repeats.at("model.layers.0"), own.at("model.layers.0")));
  other.front().second = "2";
  EXPECT_THAT(harness::message_of<ConfigError>([&] { run_recorded("fewer", other, 1); }),
              HasSubstr("model.experts is 2"));
  other.front().second = "4";
  other.back().second = (folder_ / "none").string();
  EXPECT_ANY_THROW(run_recorded("wrong", other, 1));
}

TEST_F(ActivationRecordTest, ARoundoffReachesEveryProbe) {
  run_recorded("plain", {}, 1);
  run_recorded("off", {{"record.perturb", "5"}}, 1);
  run_recorded("again", {{"record.perturb", "5"}}, 1);
  const auto plain = record("plain"), off = record("off"), again = record("again");
  for (const auto& [name, values] : plain) {
    EXPECT_FALSE(at::equal(values, off.at(name))) << name;
    EXPECT_TRUE(at::equal(again.at(name), off.at(name))) << name;
  }
  expect_same("off");
}

TEST_F(ActivationRecordTest, TheBitsOfARunAreTheSameWithIt) {
  run(config("without"), 1);
  run(config("with", {{"record.activations", "2"}}), 1);
  for (size_t step = 0; step < 6; ++step) {
    EXPECT_EQ(metrics("with")[step].at("loss"), metrics("without")[step].at("loss"));
    EXPECT_EQ(metrics("with")[step].at("grad_norm"), metrics("without")[step].at("grad_norm"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "without" / kActivationFolder));
  EXPECT_TRUE(std::filesystem::exists(step_of("with", 2)));
  EXPECT_FALSE(std::filesystem::exists(step_of("with", 3)));
}

TEST_F(ActivationRecordTest, ChoicesAndRoundoffsNeedARecord) {
  for (const char* key : {"choices", "perturb"}) {
    EXPECT_THAT(harness::message_of<ConfigError>([&] {
                  run(config("wrong", {{concat("record.", key), "1"}}), 1);
                }),
                HasSubstr("record.activations"));
  }
}

// Whoever does not record gets nobody to ask in any step.
TEST(ActivationRecord, IsOffUnlessAsked) {
  ActivationRecord record;
  EXPECT_FALSE(record.is_on());
  EXPECT_EQ(record.probes(1), nullptr);
  EXPECT_FALSE(record.wants_gradients(1));
}

TEST_F(ActivationRecordTest, TheDiskHasToHoldTheCopiesOfAllRanks) {
  FakeRun fake;
  fake.folder_ = folder_ / "fake";
  const at::Tensor x = at::ones({4, 4});
  const auto put_with = [&](int64_t copies) {
    ActivationRecord record;
    set_keys(record, {{"record.activations", 1}});
    fake.activation_copies_ = copies;
    record.on_start(fake);
    record.probes(1)->put(
        {.name = "x", .whole = {4, 4}, .boxes = {{.offset = {0, 0}, .size = {4, 4}}}, .values = x});
  };
  EXPECT_NO_THROW(put_with(4));
  EXPECT_THAT(harness::message_of<ConfigError>([&] { put_with(int64_t{1} << 50); }),
              HasSubstr("MB free"));
}

}  // namespace
}  // namespace trireme::train
