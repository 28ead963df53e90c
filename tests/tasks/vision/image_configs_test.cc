#include "trireme/tasks/vision/image_configs.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trireme::tasks {
namespace {

using nlohmann::json;

ExportedImageModel vit(int64_t width, int64_t ffn_width) {
  ImageProblem problem;
  problem.config.vit.width = width;
  problem.config.vit.ffn_width = ffn_width;
  return exported_model(problem, {.shape = {3, 32, 32}, .classes = {"cat", "dog"}});
}

TEST(ImageConfigs, TheRatioGivesTimmTheWidthOfTheFeedForward) {
  for (int64_t width = 3; width < 200; width += 7) {
    for (int64_t ffn = 1; ffn < 700; ffn += 13) {
      const json config = json::parse(timm_config(vit(width, ffn)));
      const double ratio = config["model_args"]["mlp_ratio"];
      ASSERT_EQ(static_cast<int64_t>(static_cast<double>(width) * ratio), ffn) << width;
    }
  }
}

TEST(ImageConfigs, NamesEachOutput) {
  ImageProblem problem;
  problem.config.vit.classes = 4;
  const auto model = exported_model(problem, {.shape = {1, 8, 8}, .classes = {"a", "b"}});
  const json config = json::parse(transformers_config(model, at::kFloat));
  EXPECT_EQ(config["id2label"], (json{{"0", "a"}, {"1", "b"}, {"2", "2"}, {"3", "3"}}));
  EXPECT_EQ(config["label2id"]["b"], 1);
  EXPECT_EQ(config["num_channels"], 1);
  EXPECT_EQ(config["image_size"], 8);
  EXPECT_EQ(json::parse(timm_config(model))["label_names"].size(), 4U);
}

TEST(ImageConfigs, ThePreprocessorIsThatOfEvaluation) {
  ImageProblem problem;
  const TrainedImages images{.shape = {3, 32, 32}, .classes = {"a", "b"}};
  json config = json::parse(transformers_preprocessor(exported_model(problem, images)));
  EXPECT_EQ(config["size"], (json{{"height", 32}, {"width", 32}}));
  EXPECT_EQ(config["image_mean"], (json{0.485, 0.456, 0.406}));
  problem.config.data.image_size = 32;
  problem.config.pixels.normalise = Normalisation::kHalf;
  config = json::parse(transformers_preprocessor(exported_model(problem, images)));
  EXPECT_EQ(config["size"], (json{{"shortest_edge", 32}}));
  EXPECT_EQ(config["crop_pct"], 0.875);
  EXPECT_EQ(config["image_std"], (json{0.5, 0.5, 0.5}));
}

TEST(ImageConfigs, AResNetHasTheDepthsOfItsFamily) {
  ImageProblem problem;
  problem.config.model.family = ImageFamily::kResNet50;
  const auto model = exported_model(problem, {.shape = {3, 64, 64}, .classes = {"a", "b"}});
  const json config = json::parse(transformers_config(model, at::kHalf));
  EXPECT_EQ(config["depths"], (json{3, 4, 6, 3}));
  EXPECT_EQ(config["hidden_sizes"], (json{256, 512, 1024, 2048}));
  EXPECT_EQ(config["layer_type"], "bottleneck");
  EXPECT_EQ(config["torch_dtype"], "float16");
  EXPECT_EQ(timm_architecture(model), "resnet50");
}

}  // namespace
}  // namespace trireme::tasks
