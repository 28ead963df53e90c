#include "trireme/tasks/vision/foreign_image_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/tasks/vision/image_configs.h"

namespace trireme::tasks {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

ExportedImageModel exported(ImageFamily family) {
  ExportedImageModel model{.problem = {}, .classes = {"ant", "bee", "cat"}};
  model.problem.shape = {.channels = 3, .height = 32, .width = 32};
  model.problem.config.model.family = family;
  model.problem.config.vit = {.image_size = 32,
                              .channels = 3,
                              .patch_size = 8,
                              .layers = 3,
                              .width = 24,
                              .heads = 4,
                              .ffn_width = 40,
                              .norm_epsilon = 1e-6};
  return model;
}

ForeignImageConfig parsed(const json& text) {
  return parse_foreign_image_config(text.dump(), "config.json");
}

std::string refusal_of(json text, const std::string& key, const json& value) {
  text[json::json_pointer(key)] = value;
  return harness::message_of<ConfigError>([&] { parsed(text); });
}

TEST(ForeignImageConfig, WhatIsExportedIsReadAgain) {
  for (const auto& [name, family] : kImageFamilies) {
    const ExportedImageModel model = exported(family);
    const bool is_vit = family == ImageFamily::kVit;
    std::vector<std::string> texts = {transformers_config(model, at::kFloat), own_config(model)};
    if (!is_vit) texts.push_back(timm_config(model));
    for (const std::string& text : texts) {
      const ForeignImageConfig found = parse_foreign_image_config(text, "config.json");
      EXPECT_EQ(found.model.family, family) << text;
      EXPECT_EQ(found.model.stem, ResNetStem::kLarge);
      EXPECT_EQ(found.vit.classes, 3);
      EXPECT_TRUE(found.notes.empty());
      if (!is_vit) continue;
      EXPECT_EQ(found.vit.width, 24);
      EXPECT_EQ(found.vit.layers, 3);
      EXPECT_EQ(found.vit.ffn_width, 40);
      EXPECT_EQ(found.vit.norm_epsilon, 1e-6);
    }
  }
}

TEST(ForeignImageConfig, NamesAndPixelsFollowTheProgram) {
  ExportedImageModel model = exported(ImageFamily::kResNet18);
  model.problem.config.pixels.normalise = Normalisation::kHalf;
  const auto transformers = parsed(json::parse(transformers_config(model, at::kFloat)));
  EXPECT_EQ(transformers.names, ResNetNames::kTransformers);
  EXPECT_FALSE(transformers.normalise);
  json text = json::parse(timm_config(model));
  EXPECT_EQ(parsed(text).names, ResNetNames::kTorchvision);
  EXPECT_EQ(parsed(text).normalise, Normalisation::kHalf);
  text["pretrained_cfg"]["mean"] = {0.1, 0.2, 0.3};
  EXPECT_FALSE(parsed(text).normalise);
  EXPECT_THAT(parsed(text).notes, ::testing::ElementsAre(HasSubstr("data.normalise")));
}

TEST(ForeignImageConfig, OurExportSaysWhichStem) {
  ExportedImageModel model = exported(ImageFamily::kResNet34);
  model.problem.config.model.stem = ResNetStem::kSmall;
  const auto found = parsed(json::parse(own_config(model)));
  EXPECT_EQ(found.model.stem, ResNetStem::kSmall);
  EXPECT_EQ(found.names, ResNetNames::kTorchvision);
}

TEST(ForeignImageConfig, MissingKeysAreThoseOfTransformers) {
  const auto found = parsed({{"model_type", "resnet"}});
  EXPECT_EQ(found.model.family, ImageFamily::kResNet50);
  EXPECT_EQ(found.vit.classes, 0) << "the tensors say";
  EXPECT_EQ(parsed({{"model_type", "resnet"}, {"layer_type", "basic"}}).model.family,
            ImageFamily::kResNet34);
  const auto vit = parsed({{"model_type", "vit"}, {"id2label", {{"0", "a"}, {"1", "b"}}}});
  EXPECT_EQ(vit.vit.width, 768);
  EXPECT_EQ(vit.vit.norm_epsilon, 1e-12);
  EXPECT_EQ(vit.vit.classes, 2);
}

TEST(ForeignImageConfig, WhatIsComputedOtherwiseIsRefusedByItsKey) {
  const json resnet =
      json::parse(transformers_config(exported(ImageFamily::kResNet50), at::kFloat));
  EXPECT_THAT(refusal_of(resnet, "/downsample_in_bottleneck", true),
              HasSubstr("downsample_in_bottleneck is true; expected false"));
  EXPECT_THAT(refusal_of(resnet, "/depths", {1, 1, 1, 1}), HasSubstr("ResNet-18, 34, 50"));
  EXPECT_THAT(refusal_of(resnet, "/hidden_sizes", {64, 128, 256, 512}),
              HasSubstr("[256,512,1024,2048]"));
  EXPECT_THAT(refusal_of(resnet, "/model_type", "convnext"), HasSubstr("\"resnet\" or \"vit\""));
  EXPECT_THAT(refusal_of(resnet, "/attention", 1), HasSubstr("no such key"));
  const json timm = json::parse(timm_config(exported(ImageFamily::kResNet18)));
  EXPECT_THAT(refusal_of(timm, "/architecture", "resnet18d"),
              HasSubstr("the models of timm that are read"));
  EXPECT_THAT(refusal_of(timm, "/model_args/output_stride", 8),
              HasSubstr("model_args.output_stride is 8"));
  EXPECT_THAT(refusal_of(timm, "/global_pool", "max"), HasSubstr("\"avg\""));
  EXPECT_THAT(harness::message_of<ConfigError>([] {
                parsed({{"width", 3}});
              }),
              HasSubstr("is of no image classifier"));
}

}  // namespace
}  // namespace trireme::tasks
