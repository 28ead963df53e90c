#include "trireme/tasks/vision/vision.h"

#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/tasks/vision/record_files.h"
#include "tests/train/small_run.h"
#include "trireme/base/error.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/run/inputs.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::Override;
using train::RunConfig;

// Small images that are easy to tell apart, as MNIST's files.
class VisionTest : public train::SmallRun {
 protected:
  VisionTest() { harness::write_idx_set(folder_ / "images", 64, 12, 8, 4); }

  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "images").string()},
                                         {"output.folder", (folder_ / run).string()}});
    return train::parse_config(R"(
[task]
name = "vision"
[model]
family = "resnet18"
stem = "small"
patch_size = 2
layers = 3
width = 24
heads = 4
ffn_width = 25
[augment]
crop = "shift"
padding = 1
mixup = 0.2
label_smoothing = 0.1
[train]
steps = 4
global_batch = 8
micro_batch = 4
evaluate_interval = 2
evaluate_sequences = 12
[optimizer]
name = "sgd"
learning_rate = 1e-2
warmup_steps = 1
[checkpoint]
interval = 2
)",
                               "test.toml", all_tasks(), overrides);
  }

  void expect_same(const std::string& actual, const std::string& expected, double relative) const {
    SmallRun::expect_same(
        actual, expected, relative,
        {"loss", "grad_norm", "validation_loss", "accuracy", "validation_accuracy"});
  }

  std::string refusal(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config("broken", std::move(overrides));
    return harness::message_of<ConfigError>([&] { train::open_inputs(broken, num_ranks); });
  }
};

TEST_F(VisionTest, ResNetHasTheSameBitsAtEveryZeroStageAndAfterAResume) {
  run(config("ddp"), 2);
  run(config("zero3", {{"parallel.zero", "3"}, {"train.recompute", "full"}}), 2);
  expect_same("zero3", "ddp", 0);
  const RunConfig cut = config("cut", {{"parallel.zero", "2"}});
  EXPECT_EQ(run(cut, 2, /*stop_after=*/3), train::Outcome::kStopped);
  EXPECT_EQ(run(cut, 2), train::Outcome::kFinished);
  expect_same("cut", "ddp", 0);
  for (const nlohmann::json& line : metrics("ddp")) {
    EXPECT_TRUE(line.contains("images_per_second"));
  }
}

TEST_F(VisionTest, ResNetInAPipelineIsTheSameModel) {
  const Override fp64{"train.precision", "fp64"};
  run(config("one", {fp64}), 1);
  run(config("pipeline", {fp64, {"parallel.pipeline", "2"}}), 2);
  expect_same("pipeline", "one", 1e-10);
}

TEST_F(VisionTest, ViTHasTheSameBitsAtEveryZeroStageRecomputedAndResumed) {
  const Override vit{"model.family", "vit"};
  run(config("ddp", {vit}), 2);
  for (const char* zero : {"1", "2", "3"}) {
    const std::string name = concat("zero", zero);
    run(config(name, {vit, {"parallel.zero", zero}, {"train.recompute", "full"}}), 2);
    expect_same(name, "ddp", 0);
  }
  const RunConfig cut = config("cut", {vit});
  EXPECT_EQ(run(cut, 2, /*stop_after=*/3), train::Outcome::kStopped);
  EXPECT_EQ(run(cut, 2), train::Outcome::kFinished);
  expect_same("cut", "ddp", 0);
}

TEST_F(VisionTest, ATrainedModelClassifiesWhatTheRunEvaluated) {
  for (const char* family : {"resnet18", "vit"}) {
    run(config(family, {{"model.family", family}, {"average.decay", "0.5"}}), 2);
    const TrainedClassifier trained = load_trained_classifier(folder_ / family);
    const dataset::ImageSource& images = trained.images();
    int64_t num_right = 0;
    for (int64_t i = 0; i < images.size(); ++i) {
      const dataset::NamedTensors sample = images.get(i, std::nullopt);
      const at::Tensor logits = trained.classifier->logits(sample[0].second.unsqueeze(0));
      num_right += logits.argmax(1).equal(sample[1].second.view({1})) ? 1 : 0;
    }
    EXPECT_EQ(images.size(), 12);
    EXPECT_NEAR(metrics(family).back().at("validation_accuracy").get<double>(),
                static_cast<double>(num_right) / 12, 1e-15)
        << family;
    EXPECT_NO_THROW(load_trained_classifier(folder_ / family, train::Weights::kAverage));
  }
  EXPECT_THAT(
      harness::message_of<CheckpointError>([&] { load_trained_classifier(folder_ / "nothing"); }),
      HasSubstr("no checkpoint"));
}

TEST_F(VisionTest, ViTIsTheSameModelOnEveryAxis) {
  // Mixup blends within a microbatch, so another size of it is another augmentation.
  const auto vit = [&](const std::string& name, std::vector<Override> more) {
    more.insert(more.end(),
                {{"model.family", "vit"}, {"train.precision", "fp64"}, {"augment.mixup", "0"}});
    return config(name, more);
  };
  run(vit("one", {}), 1);
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> layouts = {
      {"data", 3, {{"train.uneven_batches", "true"}, {"train.micro_batch", "2"}}},
      {"tensor", 3, {{"parallel.tensor", "3"}}},
      {"sequence", 2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {"context", 3, {{"parallel.context", "3"}}},
      {"ulysses", 2, {{"parallel.context", "2"}, {"parallel.context_form", "all-to-all"}}},
      {"pipeline", 3, {{"parallel.pipeline", "3"}, {"train.micro_batch", "2"}}},
      {"tensor and pipeline", 4, {{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}}},
      {"context and zero", 4, {{"parallel.context", "2"}, {"parallel.zero", "3"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    run(vit(name, overrides), num_ranks);
    expect_same(name, "one", 1e-10);
  }
}

TEST_F(VisionTest, ADeviceComputesWhatTheHostComputes) {
  const Override fp64{"train.precision", "fp64"}, vit{"model.family", "vit"};
  const std::vector<std::tuple<std::string, int, std::vector<Override>>> runs = {
      {"resnet pipeline", 2, {{"parallel.pipeline", "2"}, {"model.channels_last", "true"}}},
      {"resnet uneven", 3, {{"train.uneven_batches", "true"}, {"parallel.zero", "3"}}},
      {"vit", 2, {vit}},
      {"vit context", 2, {vit, {"parallel.context", "2"}}},
      {"vit sequence", 2, {vit, {"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}}};
  for (auto [name, num_ranks, overrides] : runs) {
    overrides.insert(overrides.end(), {fp64, {"train.steps", "2"}});
    run(config(name, overrides), num_ranks);
    run_on_devices(config(name + " device", overrides), num_ranks);
    expect_same(name + " device", name, 1e-10);
  }
}

TEST_F(VisionTest, ACallbackMayWatchAMetricThatDependsOnTheData) {
  const Override patience{"early_stop.patience", "2"};
  const Override top5{"early_stop.metric", "validation_top5_accuracy"};
  EXPECT_THAT(refusal({patience, top5}), HasSubstr("top5"));  // the data has 4 classes
  EXPECT_EQ(refusal({patience, {"early_stop.metric", "validation_accuracy"}}), "");
  harness::write_idx_set(folder_ / "many", 64, 12, 8, 7);
  EXPECT_EQ(refusal({patience, top5, {"data.path", (folder_ / "many").string()}}), "");
}

TEST_F(VisionTest, WrongKeysAndDataAreRefusedInOneLine) {
  EXPECT_THAT(refusal({{"data.path", (folder_ / "none").string()}}),
              AllOf(HasSubstr("data.path is"), HasSubstr("not a folder")));
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(refusal({{"data.path", (folder_ / "empty").string()}}),
              HasSubstr("no images of a known format"));
  EXPECT_THAT(refusal({{"model.classes", "3"}}),
              AllOf(HasSubstr("model.classes is 3"), HasSubstr("has 4")));
  EXPECT_THAT(refusal({{"data.image_size", "16"}}), HasSubstr("data.image_size is 16"));
  EXPECT_THAT(refusal({{"augment.crop", "resized"}}), HasSubstr("data.image_size 0"));
  EXPECT_THAT(refusal({{"train.recompute", "selective"}}), HasSubstr("train.recompute"));
  EXPECT_THAT(refusal({{"model.family", "vit"}, {"model.patch_size", "3"}}),
              AllOf(HasSubstr("model.patch_size = 3"), HasSubstr("images' size, 8")));
  EXPECT_THAT(refusal({{"model.family", "vit"}, {"parallel.context", "18"}}, 18),
              AllOf(HasSubstr("parallel.context is 18"), HasSubstr("an image's tokens 17")));
  EXPECT_THAT(refusal({{"parallel.tensor", "2"}}, 2), HasSubstr("parallel.tensor is 2"));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                config("run", {{"model.family", "resnet19"}});
              }),
              AllOf(HasSubstr("model.family is \"resnet19\""), HasSubstr("resnet18")));
}

}  // namespace
}  // namespace trireme::tasks
