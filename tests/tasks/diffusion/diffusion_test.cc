#include "trireme/tasks/diffusion/diffusion.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "tests/tasks/vision/record_files.h"
#include "tests/train/small_run.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/run/inputs.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::Override;
using train::RunConfig;

// Grey images of 8 x 8: 16 patches, which 3 ranks do not divide.
class DiffusionTest : public train::SmallRun {
 protected:
  DiffusionTest() { harness::write_idx_set(folder_ / "images", 64, 12, 8, 4); }

  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "images").string()},
                                         {"output.folder", (folder_ / run).string()}});
    return train::parse_config(R"(
[task]
name = "diffusion"
[model]
layers = 3
width = 24
heads = 4
[augment]
crop = "shift"
padding = 1
[diffusion]
timesteps = 100
class_dropout = 0.3
[train]
steps = 4
global_batch = 8
micro_batch = 4
evaluate_interval = 2
evaluate_sequences = 12
[optimizer]
name = "sgd"
learning_rate = 0.1
warmup_steps = 1
[checkpoint]
interval = 2
)",
                               "test.toml", all_tasks(), overrides);
  }

  void expect_same(const std::string& actual, const std::string& expected, double relative) const {
    SmallRun::expect_same(actual, expected, relative, {"loss", "grad_norm", "validation_loss"});
  }

  std::string refusal(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config("broken", std::move(overrides));
    return harness::message_of<ConfigError>([&] { train::open_inputs(broken, num_ranks); });
  }
};

TEST_F(DiffusionTest, HasTheSameBitsAtEveryZeroStageRecomputedOffloadedAndResumed) {
  run(config("ddp"), 2);
  for (const char* zero : {"1", "2", "3"}) {
    const std::string name = concat("zero", zero);
    run(config(name, {{"parallel.zero", zero}, {"train.recompute", "full"}}), 2);
    expect_same(name, "ddp", 0);
  }
  run(config("offload", {{"parallel.zero", "3"}, {"offload.optimizer", "disk"}}), 2);
  expect_same("offload", "ddp", 0);
  run(config("activations", {{"train.recompute", "full"}, {"offload.activations", "host"}}), 2);
  expect_same("activations", "ddp", 0);
  const RunConfig cut = config("cut", {{"parallel.zero", "2"}});
  EXPECT_EQ(run(cut, 2, /*stop_after=*/3), train::Outcome::kStopped);
  EXPECT_EQ(run(cut, 2), train::Outcome::kFinished);
  expect_same("cut", "ddp", 0);
  for (const nlohmann::json& line : metrics("ddp")) {
    EXPECT_TRUE(line.contains("images_per_second"));
  }
}

TEST_F(DiffusionTest, IsTheSameModelOnEveryAxis) {
  const Override fp64{"train.precision", "fp64"};
  // The whole batch at once is another accumulation.
  run(config("one", {fp64, {"train.micro_batch", "8"}}), 1);
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"accumulation", 1, {{"train.micro_batch", "2"}}},
      {"data", 3, {{"train.uneven_batches", "true"}, {"train.micro_batch", "2"}}},
      {"tensor", 3, {{"parallel.tensor", "3"}}},
      {"sequence", 2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {"context", 3, {{"parallel.context", "3"}}},
      {"ulysses", 2, {{"parallel.context", "2"}, {"parallel.context_form", "all-to-all"}}},
      {"pipeline", 3, {{"parallel.pipeline", "3"}, {"train.micro_batch", "2"}}},
      {"tensor and pipeline",
       4,
       {{"parallel.tensor", "2"},
        {"parallel.sequence_parallel", "true"},
        {"parallel.pipeline", "2"},
        {"parallel.schedule", "zero-bubble"}}},
      {"context and zero", 4, {{"parallel.context", "2"}, {"parallel.zero", "3"}}}};
  for (auto [name, num_ranks, overrides] : layouts) {
    overrides.push_back(fp64);
    run(config(name, overrides), num_ranks);
    expect_same(name, "one", 1e-10);
  }
}

// Those of its tokens, and the conditioning once: what blocks pass on of it is no row of a token.
TEST_F(DiffusionTest, RecordsTheSameActivationsOnEveryAxis) {
  const auto record = [&](const std::string& name, int num_ranks, std::vector<Override> overrides) {
    overrides.insert(
        overrides.end(),
        {{"record.activations", "1"}, {"train.precision", "fp64"}, {"train.steps", "1"}});
    run(config(name, overrides), num_ranks);
    return checkpoint::load_global(folder_ / name / "activations" / checkpoint::folder_name(1));
  };
  const auto one = record("one", 1, {});
  // The embedding, the last product, and two of each block, with gradients; the conditioning.
  EXPECT_EQ(one.size(), 2 * (2 + 3 * 2U) + 1);
  EXPECT_EQ(one.at("conditioning").sizes(), (std::vector<int64_t>{8, 24}));
  EXPECT_EQ(one.at("transformer_blocks.1").sizes(), (std::vector<int64_t>{8 * 16, 24}));
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"sequence", 2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {"context", 2, {{"parallel.context", "2"}, {"train.recompute", "full"}}},
      {"pipeline", 3, {{"parallel.pipeline", "3"}, {"train.micro_batch", "2"}}},
      {"zero", 2, {{"parallel.zero", "3"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    const auto found = record(name, num_ranks, overrides);
    ASSERT_EQ(found.size(), one.size()) << name;
    for (const auto& [probe, values] : one) {
      ASSERT_TRUE(found.contains(probe)) << name << ", " << probe;
      ASSERT_EQ(found.at(probe).sizes(), values.sizes()) << name << ", " << probe;
      EXPECT_LE((found.at(probe) - values).abs().max().item<double>(),
                1e-10 * values.abs().max().item<double>())
          << name << ", " << probe;
    }
  }
}

TEST_F(DiffusionTest, LearnsInEveryPrecision) {
  for (const char* precision : {"fp32", "bf16"}) {
    run(config(precision, {{"train.precision", precision}}), 2);
    const auto lines = metrics(precision);
    // The first model finds no noise: the mean of squares of normal numbers.
    EXPECT_NEAR(lines.front().at("loss").get<double>(), 1, 0.3) << precision;
    EXPECT_LT(lines.back().at("validation_loss").get<double>(),
              lines[1].at("validation_loss").get<double>())
        << precision;
  }
}

TEST_F(DiffusionTest, ADeviceComputesWhatTheHostComputes) {
  const Override fp64{"train.precision", "fp64"};
  run(config("host", {fp64, {"train.steps", "2"}}), 2);
  run_on_devices(config("device", {fp64, {"train.steps", "2"}}), 2);
  expect_same("device", "host", 1e-10);
}

TEST_F(DiffusionTest, ATrainedModelSamplesTheSameImagesForASeed) {
  run(config("run", {{"average.decay", "0.5"},
                     {"train.steps", "20"},
                     {"optimizer.name", "adamw"},
                     {"optimizer.learning_rate", "1e-2"}}),
      1);
  const TrainedDiffusion last = load_trained_diffusion(folder_ / "run");
  const TrainedDiffusion average =
      load_trained_diffusion(folder_ / "run", train::Weights::kAverage);
  const SamplingOptions options{.classes = {0, 3, 4}, .steps = 5, .seed = 7};
  std::vector<int64_t> steps;
  const at::Tensor images =
      sample_images(*last.model, last.schedule(), options, [&](int64_t done, int64_t total) {
        steps.push_back(done);
        EXPECT_EQ(total, 5);
      });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(images.sizes(), at::IntArrayRef({3, 1, 8, 8}));
  EXPECT_TRUE(images.equal(sample_images(*last.model, last.schedule(), options)));
  SamplingOptions other = options;
  other.seed = 8;
  EXPECT_FALSE(images.equal(sample_images(*last.model, last.schedule(), other)));
  other = options;
  other.classes = {0, 1, 2, 3};
  const at::Tensor more = sample_images(*last.model, last.schedule(), other);
  EXPECT_LE((more[0].to(at::kInt) - images[0].to(at::kInt)).abs().max().item<int>(), 1);
  // In groups of 32.
  other.classes.assign(33, 3);
  const at::Tensor many = sample_images(*last.model, last.schedule(), other);
  EXPECT_EQ(many.size(0), 33);
  EXPECT_LE((many[1].to(at::kInt) - images[1].to(at::kInt)).abs().max().item<int>(), 1);
  EXPECT_FALSE(many[32].equal(many[0]));
  EXPECT_FALSE(images.equal(sample_images(*average.model, average.schedule(), options)));
  other = options;
  other.guidance = 1;
  EXPECT_FALSE(images.equal(sample_images(*last.model, last.schedule(), other)));
  other.classes = {5};
  EXPECT_THROW(sample_images(*last.model, last.schedule(), other), ConfigError);
  EXPECT_THAT(
      harness::message_of<CheckpointError>([&] { load_trained_diffusion(folder_ / "nothing"); }),
      HasSubstr("no checkpoint"));
}

TEST_F(DiffusionTest, WrongKeysAndDataAreRefusedInOneLine) {
  EXPECT_THAT(refusal({{"model.classes", "3"}}),
              AllOf(HasSubstr("model.classes is 3"), HasSubstr("has 4")));
  EXPECT_THAT(refusal({{"model.image_size", "16"}}),
              AllOf(HasSubstr("model.image_size is 16"), HasSubstr("has 8")));
  EXPECT_THAT(refusal({{"model.channels", "3"}}),
              AllOf(HasSubstr("model.channels is 3"), HasSubstr("has 1")));
  EXPECT_THAT(refusal({{"model.patch_size", "3"}}),
              AllOf(HasSubstr("model.patch_size = 3"), HasSubstr("images' size, 8")));
  EXPECT_THAT(refusal({{"parallel.context", "17"}}, 17),
              AllOf(HasSubstr("parallel.context is 17"), HasSubstr("an image's patches 16")));
  EXPECT_THAT(refusal({{"parallel.tensor", "5"}}, 5), HasSubstr("parallel.tensor is 5"));
  EXPECT_THAT(refusal({{"model.width", "22"}}),
              AllOf(HasSubstr("model.width = 22"), HasSubstr("multiple of 4")));
  EXPECT_THAT(refusal({{"model.heads", "5"}}), HasSubstr("model.heads = 5 does not divide"));
  EXPECT_THAT(refusal({{"diffusion.beta_start", "0.5"}}),
              AllOf(HasSubstr("diffusion.beta_start is 0.5"), HasSubstr("noise must grow")));
  EXPECT_THAT(refusal({{"augment.crop", "resized"}}), HasSubstr("data.image_size 0"));
  for (const auto& [key, value] :
       {std::pair("diffusion.schedule", "sigmoid"), std::pair("augment.mixup", "0.1")}) {
    EXPECT_THAT(harness::message_of<ConfigError>([&] {
                  config("run", {{key, value}});
                }),
                HasSubstr(key));
  }
}

}  // namespace
}  // namespace trireme::tasks
