#include "trireme/tasks/diffusion/diffusers_weights.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const model::DitConfig kTinyDit = {.image_size = 4,
                                   .channels = 3,
                                   .patch_size = 2,
                                   .layers = 2,
                                   .width = 8,
                                   .heads = 2,
                                   .classes = 5};
constexpr const char* kCopy = "transformer_blocks.1.norm1.emb.timestep_embedder.linear_1.bias";

// Values that differ from tensor to tensor, but not from copy to copy.
std::map<std::string, at::Tensor> numbered() {
  std::map<std::string, at::Tensor> tensors;
  int64_t number = 0;
  std::map<std::string, int64_t> begins;
  for (const model::HuggingFaceTensor& tensor : diffusers_tensors(kTinyDit)) {
    const int64_t count = c10::multiply_integers(tensor.shape);
    const auto [begin, is_new] = begins.try_emplace(tensor.parts.front(), number);
    if (is_new) number += count;
    tensors[tensor.name] =
        at::arange(begin->second, begin->second + count, at::kFloat).view(tensor.shape);
  }
  return tensors;
}

class DiffusersWeightsTest : public ::testing::Test {
 protected:
  void save(const std::map<std::string, at::Tensor>& tensors) {
    std::filesystem::create_directories(folder_ / "transformer");
    std::ofstream(folder_ / "transformer" / "config.json") << diffusers_config(kTinyDit);
    checkpoint::write_safetensors(folder_ / "transformer" / "diffusion_pytorch_model.safetensors",
                                  tensors, {});
  }
  DiffusersWeights open(bool has_variances = false) const {
    return {find_diffusers_folder(folder_.path()).value(),
            {.dit = kTinyDit, .has_variances = has_variances}};
  }
  std::string refusal() const {
    return harness::message_of<CheckpointError>([&] {
      const DiffusersWeights weights = open();
      for (const auto& [name, tensor] : weights.tensors()) weights.read(name);
    });
  }

  harness::TemporaryFolder folder_;
};

TEST_F(DiffusersWeightsTest, AreTheModelsParametersOfOneCopyOfTheEmbeddings) {
  const auto tensors = numbered();
  save(tensors);
  const DiffusersWeights weights = open();
  for (const model::HuggingFaceTensor& tensor : diffusers_tensors(kTinyDit)) {
    harness::assert_same_bits(weights.read(tensor.parts.front()), tensors.at(tensor.name),
                              tensor.name);
  }
  EXPECT_EQ(weights.num_rounded(at::kBFloat16), std::ssize(weights.tensors()));
  EXPECT_EQ(weights.num_rounded(at::kDouble), 0);
}

TEST_F(DiffusersWeightsTest, VariancesBehindTheNoiseOfEachPlaceAreLeftOut) {
  auto tensors = numbered();
  const std::map<std::string, at::Tensor> before = tensors;
  for (const char* name : {"proj_out_2.weight", "proj_out_2.bias"}) {
    const at::Tensor noise = tensors.at(name);
    std::vector<int64_t> by_place = {4, 3}, shape = noise.sizes().vec();
    by_place.push_back(noise.numel() / 12);
    shape.front() *= 2;
    const at::Tensor places = noise.view(by_place);
    tensors[name] = at::cat({places, places.neg()}, 1).view(shape).contiguous();
  }
  save(tensors);
  const DiffusersWeights weights = open(/*has_variances=*/true);
  for (const char* name : {"proj_out_2.weight", "proj_out_2.bias"})
    harness::assert_same_bits(weights.read(name), before.at(name), name);
  EXPECT_THAT(refusal(), HasSubstr("different shape"));
}

TEST_F(DiffusersWeightsTest, BlocksWithDifferentEmbeddingsAreRefused) {
  auto tensors = numbered();
  tensors.at(kCopy) = tensors.at(kCopy) + 1;
  save(tensors);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(kCopy), HasSubstr("share one embedding")));
}

TEST_F(DiffusersWeightsTest, WhatDoesNotFitIsNamed) {
  auto tensors = numbered();
  tensors.erase(kCopy);
  tensors["adapter"] = at::ones({2});
  tensors.at("proj_out_1.bias") = at::ones({3});
  tensors["pos_embed.pos_embed"] = at::ones({1});  // computed
  save(tensors);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(concat("1 missing: ", kCopy)),
                               HasSubstr("1 unexpected: adapter"), HasSubstr("proj_out_1.bias")));
}

TEST_F(DiffusersWeightsTest, OtherFoldersAreNone) {
  EXPECT_FALSE(find_diffusers_folder(folder_.path()));
}

}  // namespace
}  // namespace trireme::tasks
