// A language model of images against Hugging Face's transformers, whose LLaVA loads our weights
// with the config.json that an export writes: logits, loss and every gradient.
#include "trireme/model/clip/image_input.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/model/transformers_agreement.h"

namespace trireme::model {
namespace {

using testing::HasSubstr;

// One block of the tower does not run.
ModelConfig tiny_llava() {
  ModelConfig config{.layers = 2,
                     .width = 24,
                     .heads = 6,
                     .kv_heads = 2,
                     .ffn_width = 40,
                     .sequence_length = 13,
                     .vocab_size = 37,
                     .norm_epsilon = 1e-3};
  config.vision.layers = 3;
  config.vision.width = 20;
  config.vision.heads = 5;
  config.vision.ffn_width = 28;
  config.vision.image_size = 6;
  config.vision.patch_size = 3;
  config.vision.norm_epsilon = 1e-4;
  config.vision.image_token = 5;
  return config;
}

// llava-hf/llava-1.5-7b-hf with an eighth of its widths, few layers and small images.
ModelConfig small_llava() {
  ModelConfig config{.layers = 2,
                     .width = 512,
                     .heads = 4,
                     .kv_heads = 4,
                     .ffn_width = 1376,
                     .sequence_length = 40,
                     .vocab_size = 4008,
                     .norm_epsilon = 1e-5};
  config.vision.layers = 3;
  config.vision.width = 128;
  config.vision.heads = 2;
  config.vision.ffn_width = 512;
  config.vision.image_size = 56;
  config.vision.image_token = 4000;
  return config;
}

// Away from the initial symmetry: norms are not all one, and biases not zero. Matrices stay as they
// begin, so that sums in fp32 are not of large terms that cancel.
std::unique_ptr<LanguageModel> some_llava(const ModelConfig& config, at::ScalarType dtype) {
  auto model = make_model(config, 7, dtype);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->module().named_parameters()) {
    if (item.value().dim() > 1) continue;
    const at::Tensor index = at::arange(item.value().numel(), dtype);
    item.value().add_(index.mul(0.7).sin().mul(0.05).view(item.value().sizes()));
  }
  return model;
}

// Three sequences with two images, none and one.
struct LlavaInput {
  at::Tensor tokens, targets, images;
};
LlavaInput some_input(const ModelConfig& config) {
  const int64_t T = config.sequence_length, V = config.vocab_size, P = config.vision.num_patches();
  const int64_t S = config.vision.image_size;
  const at::Tensor index = at::arange(3 * T, at::kLong).view({3, T});
  at::Tensor tokens = index.mul(7).remainder(V);
  tokens.masked_fill_(tokens.eq(config.vision.image_token), 0);
  for (const auto& [row, first] : {std::pair(0, int64_t{1}), {0, P + 3}, {2, T - P}}) {
    tokens.select(0, row).narrow(0, first, P).fill_(config.vision.image_token);
  }
  const at::Tensor targets =
      index.mul(5).remainder(V).masked_fill(index.remainder(6).eq(1), kIgnoredTarget);
  const at::Tensor images = at::arange(3 * 2 * 3 * S * S, at::kDouble).mul(0.37).sin().mul(2);
  return {tokens, targets, images.view({3, 2, 3, S, S})};
}

// The names of our parameters in files of LLaVA.
std::map<std::string, std::string> names_of_files(const ModelConfig& config) {
  std::map<std::string, std::string> names;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(config)) {
    names[tensor.parts.at(0)] = tensor.name;
  }
  return names;
}

void write_llava(const std::filesystem::path& folder, const ModelConfig& config,
                 at::ScalarType dtype) {
  const auto names = names_of_files(config);
  const auto [tokens, targets, images] = some_input(config);
  const at::Tensor taken = images.flatten(0, 1).index_select(0, at::tensor({0, 1, 4}));
  write_reference_folder(folder, *some_llava(config, dtype), dtype,
                         {{"tokens", tokens}, {"targets", targets}, {"images", taken}},
                         [&](const std::string& name) { return names.at(name); });
}

void expect_result_of_llava(const std::filesystem::path& folder, const ModelConfig& config,
                            at::ScalarType dtype, double tolerance) {
  const TensorMap expected = harness::read_tensors(folder / "result.safetensors");
  const TensorMap gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_llava(config, dtype);
  const auto [tokens, targets, images] = some_input(config);
  harness::assert_close(model->logits(tokens, {}, images).detach(), expected.at("logits"),
                        tolerance, tolerance, "logits");
  const at::Tensor hidden = model->forward_part({.tokens_BT = tokens, .images = images}).hidden;
  const at::Tensor loss = model->head_loss(hidden, targets).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), tolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  const auto names = names_of_files(config);
  int64_t unused = 0;
  for (const auto& item : model->module().named_parameters()) {
    const std::string& name = names.at(item.key());
    ASSERT_TRUE(gradients.contains(name)) << name;
    const at::Tensor& theirs = gradients.at(name);
    if (!item.value().requires_grad()) {
      EXPECT_EQ(theirs.abs().max().item<double>(), 0) << name;
      ++unused;
      continue;
    }
    // Keys' biases shift all scores alike: their gradient is a sum that cancels, of terms as large
    // as those of the queries' biases.
    std::string scale = name;
    if (const size_t at = name.find("k_proj.bias"); at != name.npos) scale.replace(at, 1, "q");
    harness::assert_close(item.value().grad(), theirs, 0,
                          tolerance * gradients.at(scale).abs().max().item<double>(), name);
  }
  EXPECT_EQ(unused, 16 + 2);
}

// fp64: sums are of at most 147 terms. fp32: 24 bits, sums of up to 4008 terms, whose error grows
// with the root of their number.
TEST(ImageInput, LlavaAgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const auto tiny = folder.path() / "tiny", small = folder.path() / "small";
  write_llava(tiny, tiny_llava(), at::kDouble);
  write_llava(small, small_llava(), at::kFloat);
  ASSERT_NO_FATAL_FAILURE(run_reference({tiny, small}));
  {
    SCOPED_TRACE("tiny, fp64");
    expect_result_of_llava(tiny, tiny_llava(), at::kDouble, 1e-10);
  }
  SCOPED_TRACE("proportions of LLaVA 1.5 7B, fp32");
  expect_result_of_llava(small, small_llava(), at::kFloat, 1e-5);
}

TEST(ImageInput, ItsConfigIsReadAsItWasWritten) {
  ModelConfig config = small_llava();
  const std::string text = hugging_face_config(config, at::kFloat, std::nullopt);
  const HuggingFaceModel found = parse_hugging_face_config(text, "config.json");
  EXPECT_EQ(hugging_face_config(found.config, at::kFloat, std::nullopt), text);
  EXPECT_EQ(found.config.vision.layers, config.vision.layers);
  EXPECT_EQ(found.config.vision.image_token, config.vision.image_token);
  EXPECT_EQ(found.config.vision.feature_layer, -2);
}

TEST(ImageInput, RefusesImageTokensThatAreNotThoseOfTheImages) {
  const ModelConfig config = tiny_llava();
  const auto model = some_llava(config, at::kDouble);
  const auto [tokens, targets, images] = some_input(config);
  const auto refusal = [&, &tokens = tokens](const at::Tensor& given) {
    return harness::message_of<ConfigError>(
        [&] { model->forward_part({.tokens_BT = tokens, .images = given}); });
  };
  EXPECT_THAT(refusal(images.narrow(1, 0, 1)),
              HasSubstr("8 image tokens; expected 4 for each of at most 1 images"));
  EXPECT_THAT(refusal({}), HasSubstr("at most 0 images"));
  EXPECT_THAT(refusal(images.narrow(3, 0, 5)), HasSubstr("images of shape"));
  tokens.select(0, 1).select(0, 3).fill_(config.vision.image_token);
  EXPECT_THAT(refusal(images), HasSubstr("a sequence has 1 image tokens; expected 4"));
}

TEST(ImageInput, RefusesKeysThatDoNotFit) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = tiny_llava();
    change(config);
    return harness::message_of<ConfigError>([&] { validate(config); });
  };
  EXPECT_THAT(refusal([](ModelConfig& c) { c.vision.patch_size = 4; }),
              HasSubstr("vision.patch_size is 4 and vision.image_size 6"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.vision.heads = 3; }), HasSubstr("vision.heads is 3"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.vision.feature_layer = -4; }),
              HasSubstr("vision.feature_layer is -4 and vision.layers 3"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.vision.image_token = 37; }),
              HasSubstr("vision.image_token is 37 and model.vocab_size 37"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.sequence_length = 3; }),
              HasSubstr("an image takes 4 tokens, and model.sequence_length is 3"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.family = "gpt2"; }),
              HasSubstr("model.family \"gpt2\", which reads text only"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.vision.layers = 0; }),
              HasSubstr("is set and vision.layers 0"));
}

}  // namespace
}  // namespace trireme::model
