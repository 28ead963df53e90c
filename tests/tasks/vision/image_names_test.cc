#include "trireme/tasks/vision/image_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/model/vit/vit_plan.h"

namespace trireme::tasks {
namespace {

using model::HuggingFaceTensor;

const HuggingFaceTensor& named(const std::vector<HuggingFaceTensor>& tensors,
                               const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &HuggingFaceTensor::name);
  if (found == tensors.end()) throw std::runtime_error("no " + name);
  return *found;
}

TEST(ImageNames, TimmJoinsQueryKeyAndValue) {
  const model::ModelPlan plan = model::make_vit_plan({.image_size = 8,
                                                      .patch_size = 4,
                                                      .layers = 2,
                                                      .width = 6,
                                                      .heads = 2,
                                                      .ffn_width = 10,
                                                      .classes = 3},
                                                     1);
  const auto tensors = timm_vit_tensors(plan.parameters());
  EXPECT_EQ(tensors.size(), plan.parameters().size() - 2U * 4) << "key and value, of each layer";
  const HuggingFaceTensor& joined = named(tensors, "blocks.1.attn.qkv.weight");
  EXPECT_EQ(joined.shape, (std::vector<int64_t>{18, 6}));
  EXPECT_EQ(joined.parts,
            (std::vector<std::string>{"vit.encoder.layer.1.attention.attention.query.weight",
                                      "vit.encoder.layer.1.attention.attention.key.weight",
                                      "vit.encoder.layer.1.attention.attention.value.weight"}));
  EXPECT_EQ(named(tensors, "blocks.0.attn.qkv.bias").shape, (std::vector<int64_t>{18}));
  EXPECT_EQ(named(tensors, "blocks.0.attn.proj.weight").parts.at(0),
            "vit.encoder.layer.0.attention.output.dense.weight");
  EXPECT_EQ(named(tensors, "blocks.0.mlp.fc2.weight").parts.at(0),
            "vit.encoder.layer.0.output.dense.weight");
  for (const char* const name : {"cls_token", "pos_embed", "patch_embed.proj.bias", "norm.weight",
                                 "head.bias", "blocks.1.norm1.bias", "blocks.1.norm2.weight"}) {
    EXPECT_EQ(named(tensors, name).parts.size(), 1U);
  }
}

std::vector<model::ParameterPlan> small_resnet() {
  const auto one = [](const char* name, std::vector<int64_t> shape) {
    return model::ParameterPlan{name, mesh::Layout(std::move(shape), {{"tensor", 1}})};
  };
  return {one("conv1.weight", {64, 3, 7, 7}),
          one("bn1.weight", {64}),
          one("bn1.bias", {64}),
          one("layer4.10.conv3.weight", {8, 8, 1, 1}),
          one("layer4.10.downsample.1.weight", {8}),
          one("fc.weight", {2, 8}),
          one("fc.bias", {2})};
}

TEST(ImageNames, AResNetHasTheRunningStatisticsOfItsNorms) {
  const auto plan = small_resnet();
  EXPECT_EQ(running_statistics(plan),
            (std::set<std::string>{"bn1.running_mean", "bn1.running_var",
                                   "layer4.10.downsample.1.running_mean",
                                   "layer4.10.downsample.1.running_var"}));
  const auto tensors = resnet_tensors(plan);
  EXPECT_EQ(tensors.size(), plan.size() + 4);
  EXPECT_EQ(named(tensors, "bn1.running_var").shape, (std::vector<int64_t>{64}));
}

TEST(ImageNames, TransformersNamesStagesAndLayersFromZero) {
  const auto tensors = hf_resnet_tensors(small_resnet());
  EXPECT_EQ(named(tensors, "resnet.embedder.embedder.normalization.running_mean").parts.at(0),
            "bn1.running_mean");
  EXPECT_EQ(
      named(tensors, "resnet.encoder.stages.3.layers.10.layer.2.convolution.weight").parts.at(0),
      "layer4.10.conv3.weight");
  named(tensors, "resnet.encoder.stages.3.layers.10.shortcut.normalization.running_var");
  EXPECT_EQ(named(tensors, "classifier.1.bias").parts.at(0), "fc.bias");
}

}  // namespace
}  // namespace trireme::tasks
