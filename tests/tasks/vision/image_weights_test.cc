#include "trireme/tasks/vision/image_weights.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tasks/vision/image_configs.h"
#include "trireme/tasks/vision/image_names.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

ImageProblem resnet_problem() {
  ImageProblem problem;
  problem.config.model.family = ImageFamily::kResNet18;
  problem.take_images({.channels = 3, .height = 32, .width = 32}, 4, "images");
  return problem;
}

// Values that differ from tensor to tensor.
Tensors numbered(const std::vector<model::HuggingFaceTensor>& wanted,
                 const std::string& prefix = "") {
  Tensors tensors;
  int64_t number = 0;
  for (const model::HuggingFaceTensor& tensor : wanted)
    tensors[concat(prefix, tensor.name)] = at::full(tensor.shape, ++number, at::kFloat);
  return tensors;
}

class ImageWeightsTest : public ::testing::Test {
 protected:
  ImageWeightsTest() : plan_(make_image_model(problem_)->parameters({})) {}

  void save(const Tensors& tensors) const {
    checkpoint::write_safetensors(folder_ / "model.safetensors", tensors);
  }
  ImageWeights open(const std::filesystem::path& path) const {
    return {path, open_foreign_images(path).value(), problem_};
  }
  void expect_values(const ImageWeights& weights, const Tensors& saved,
                     const std::vector<model::HuggingFaceTensor>& wanted,
                     const std::string& prefix = "") const {
    ASSERT_EQ(weights.tensors().size(), wanted.size());
    for (const model::HuggingFaceTensor& tensor : wanted) {
      harness::assert_same_bits(weights.read(tensor.parts.front()),
                                saved.at(concat(prefix, tensor.name)), tensor.name);
    }
  }
  template <typename Error>
  std::string refusal(const Tensors& tensors) const {
    save(tensors);
    return harness::message_of<Error>([&] { open(folder_.path()); });
  }

  harness::TemporaryFolder folder_;
  const ImageProblem problem_ = resnet_problem();
  const std::vector<model::ParameterPlan> plan_;
};

TEST_F(ImageWeightsTest, AStateDictOfTorchvisionNeedsNoConfig) {
  const auto wanted = resnet_tensors(plan_);
  Tensors tensors = numbered(wanted);
  tensors["bn1.num_batches_tracked"] = at::zeros({}, at::kLong);
  save(tensors);
  for (const auto& path : {folder_.path(), folder_ / "model.safetensors"}) {
    const auto found = open_foreign_images(path).value();
    EXPECT_EQ(found.config.model.family, ImageFamily::kResNet18);
    EXPECT_EQ(found.config.vit.classes, 4);
    require_same_model(path, found.config, problem_);
    const ImageWeights weights = open(path);
    expect_values(weights, tensors, wanted);
    EXPECT_EQ(weights.num_rounded(at::kBFloat16), std::ssize(wanted));
    EXPECT_EQ(weights.num_rounded(at::kDouble), 0);
  }
}

TEST_F(ImageWeightsTest, AModelWithinATrainersCheckpointIsFound) {
  const auto wanted = resnet_tensors(plan_);
  Tensors tensors = numbered(wanted, "state_dict.module.");
  tensors["optimizer.state.0.momentum_buffer"] = at::ones({2});
  save(tensors);
  const ImageWeights weights = open(folder_.path());
  expect_values(weights, tensors, wanted, "state_dict.module.");
  EXPECT_EQ(weights.num_beside(), 1);
  tensors.merge(numbered(wanted, "ema."));
  EXPECT_THAT(refusal<CheckpointError>(tensors),
              AllOf(HasSubstr("several models"), HasSubstr("ema.")));
}

TEST_F(ImageWeightsTest, AFolderOfTransformersHasOtherNames) {
  const auto wanted = hf_resnet_tensors(plan_);
  const Tensors tensors = numbered(wanted);
  save(tensors);
  ExportedImageModel model{.problem = problem_, .classes = {"a", "b", "c", "d"}};
  std::ofstream(folder_ / "config.json") << transformers_config(model, at::kFloat);
  expect_values(open(folder_.path()), tensors, wanted);
  model.classes.pop_back();
  std::ofstream(folder_ / "config.json") << transformers_config(model, at::kFloat);
  EXPECT_THAT(harness::message_of<ConfigError>([&] { open(folder_.path()); }),
              AllOf(HasSubstr("has 3 classes"), HasSubstr("classifier.1.weight has 4")));
}

TEST_F(ImageWeightsTest, WhatDoesNotFitIsNamed) {
  Tensors tensors = numbered(resnet_tensors(plan_));
  tensors.erase("layer2.0.bn1.running_mean");
  tensors["layer2.0.se.weight"] = at::ones({2});
  tensors.at("layer3.1.conv2.weight") = at::ones({256, 8, 3, 3});  // of groups
  EXPECT_THAT(refusal<CheckpointError>(tensors),
              AllOf(HasSubstr("1 missing: layer2.0.bn1.running_mean"),
                    HasSubstr("1 unexpected: layer2.0.se.weight"),
                    HasSubstr("layer3.1.conv2.weight is Float [256, 8, 3, 3]")));
  tensors = numbered(resnet_tensors(plan_));
  tensors.at("fc.bias").fill_(std::numeric_limits<float>::infinity());
  save(tensors);
  EXPECT_THAT(harness::message_of<CheckpointError>([&] { open(folder_.path()).read("fc.bias"); }),
              HasSubstr("fc.bias"));
}

TEST_F(ImageWeightsTest, OtherModelsAreRefused) {
  Tensors tensors = numbered(resnet_tensors(plan_));
  Tensors headless = tensors;
  headless.erase("fc.weight");
  EXPECT_THAT(refusal<CheckpointError>(headless), HasSubstr("no matrix fc.weight"));
  tensors["layer4.2.conv1.weight"] = at::ones({1});
  EXPECT_THAT(refusal<ConfigError>(tensors),
              AllOf(HasSubstr("2, 2, 2 and 3 blocks"), HasSubstr("ResNet-18, 34, 50")));
  EXPECT_THAT(refusal<ConfigError>({{"features.0.weight", at::ones({2})}}),
              HasSubstr("layer1.0.conv1.weight"));
}

TEST_F(ImageWeightsTest, AKeyOfAnotherModelIsRefused) {
  save(numbered(resnet_tensors(plan_)));
  const auto found = open_foreign_images(folder_.path()).value().config;
  const auto message = [&](const ImageProblem& problem) {
    return harness::message_of<ConfigError>(
        [&] { require_same_model(folder_.path(), found, problem); });
  };
  ImageProblem other = problem_;
  other.config.model.family = ImageFamily::kResNet34;
  EXPECT_THAT(message(other), AllOf(HasSubstr("model.family is resnet34"), HasSubstr("resnet18")));
  other = problem_;
  other.config.model.stem = ResNetStem::kSmall;
  EXPECT_THAT(message(other), HasSubstr("model.stem is small"));
  other = problem_;
  other.config.vit.classes = 10;  // a new head
  require_same_model(folder_.path(), found, other);
}

TEST_F(ImageWeightsTest, OtherFoldersAreNone) {
  EXPECT_FALSE(open_foreign_images(folder_.path()));
  save({{"a", at::ones({1})}});
  std::ofstream(folder_ / "manifest.json") << "{}";  // a checkpoint
  EXPECT_FALSE(open_foreign_images(folder_.path()));
  EXPECT_FALSE(open_foreign_images(folder_ / "none"));
}

}  // namespace
}  // namespace trireme::tasks
