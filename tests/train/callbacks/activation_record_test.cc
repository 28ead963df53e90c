#include "trireme/train/callbacks/activation_record.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include <malloc.h>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/live_bytes.h"
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

// What libtorch and malloc have given out, at libtorch's allocations: buffers of files count too.
class HeldBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* data, int64_t bytes, size_t total, size_t reserved,
                         c10::Device device) override {
    live_.reportMemoryUsage(data, bytes, total, reserved, device);
    most_in_heap_ = std::max(most_in_heap_, in_heap());
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t most() const { return std::max(live_.peak(), most_in_heap_ - heap_before_); }

 private:
  static int64_t in_heap() {
    const struct mallinfo2 heap = ::mallinfo2();
    return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  }
  harness::LiveBytes live_;
  int64_t heap_before_ = in_heap();
  int64_t most_in_heap_ = heap_before_;
};

int64_t most_held(const std::function<void()>& run) {
  const auto held = std::make_shared<HeldBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, held);
  run();
  return held->most();
}

// Units of one activation and its gradient. shape: of a microbatch of two; perturb: a key's value
void expect_memory_of_a_unit(const std::filesystem::path& folder, const std::vector<int64_t>& shape,
                             int64_t num_units, double perturb = 0) {
  ActivationRecord record;
  set_keys(record, {{"record.activations", 1}, {"record.perturb", perturb}});
  FakeRun fake;
  fake.folder_ = folder;
  record.on_start(fake);
  verify::ProbeSink* const sink = record.probes(1);
  const auto step = [&](bool is_recorded) {
    for (const int64_t first : {int64_t{0}, shape[0]}) {
      std::optional<verify::ProbeScope> scope;
      if (is_recorded) {
        scope.emplace(verify::ProbeContext{
            .sink = sink, .first_sample = first, .num_samples = 2 * shape[0], .samples = shape[0]});
      }
      at::Tensor x = at::rand(shape).requires_grad_();
      for (int64_t unit = 0; unit < num_units; ++unit)
        x = verify::probe(concat("unit ", unit), x.sin());
      x.sum().backward();
    }
  };
  const int64_t bytes_of_unit = 2 * c10::multiply_integers(shape) * int64_t{sizeof(float)};
  const int64_t without = most_held([&] { step(false); });
  EXPECT_LE(most_held([&] { step(true); }) - without, bytes_of_unit);
  EXPECT_LE(most_held([&] { record.on_gradients(fake); }), bytes_of_unit);
  const auto saved = checkpoint::inspect(folder / kActivationFolder / checkpoint::folder_name(1));
  EXPECT_EQ(std::ssize(saved.tensors), 2 * num_units);
}

TEST_F(ActivationRecordTest, HoldsNoMoreThanTheProbesOfAUnit) {
  // Rows of 4 KiB, of 64 KiB, and of 3 MB, which is more than a chunk of a checkpoint.
  expect_memory_of_a_unit(folder_ / "short", {512, 1024}, 24);
  expect_memory_of_a_unit(folder_ / "perturbed", {512, 1024}, 24, 5);
  expect_memory_of_a_unit(folder_ / "long", {32, 16, 1024}, 24);
  expect_memory_of_a_unit(folder_ / "longer", {2, 3, 500, 500}, 12);
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
