// Our Gemma against Hugging Face's transformers, which loads our weights with the config.json that
// an export writes: logits, loss and every gradient.
#include "trireme/model/gemma/gemma.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using TensorMap = std::map<std::string, at::Tensor>;

// Nothing is a default, and scores and logits are well into their caps.
ModelConfig tiny_gemma2() {
  return {.family = "gemma",
          .layers = 3,
          .width = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn_width = 40,
          .sequence_length = 13,
          .vocab_size = 29,
          .norm_epsilon = 1e-4,
          .rope_base = 500,
          .tied_embedding = true,
          .logits_softcap = 3,
          .attention = {.head_width = 6,
                        .window = 4,
                        .window_layers = "wwf",
                        .query_scalar = 2,
                        .attention_softcap = 1.5}};
}

// Gemma 2 2B, each size about an eighteenth.
ModelConfig small_gemma2_2b() {
  return {.family = "gemma",
          .layers = 4,
          .width = 128,
          .heads = 8,
          .kv_heads = 4,
          .ffn_width = 512,
          .sequence_length = 64,
          .vocab_size = 1000,
          .norm_epsilon = 1e-6,
          .tied_embedding = true,
          .logits_softcap = 30,
          .attention = {
              .head_width = 14, .window = 32, .window_layers = "wf", .attention_softcap = 50}};
}

// Layers with full attention have scaled positions, and the others another angle.
ModelConfig tiny_gemma3() {
  ModelConfig config = tiny_gemma2();
  config.logits_softcap = 0;
  config.attention.attention_softcap = 0;
  config.attention.qk_norm = true;
  config.rope = {.rope_scaling = RopeScaling::kLinear, .rope_factor = 4, .rope_local_base = 20};
  return config;
}

// Gemma 3 1B, each size an eighth.
ModelConfig small_gemma3_1b() {
  return {.family = "gemma",
          .layers = 7,
          .width = 144,
          .heads = 4,
          .kv_heads = 1,
          .ffn_width = 864,
          .sequence_length = 64,
          .vocab_size = 1000,
          .norm_epsilon = 1e-6,
          .rope_base = 1e6,
          .tied_embedding = true,
          .attention = {.qk_norm = true, .head_width = 32, .window = 16, .window_layers = "wwwwwf"},
          .rope = {.rope_local_base = 1e4}};
}

ModelConfig untied(ModelConfig config) {
  config.tied_embedding = false;
  return config;
}

struct Case {
  std::string name;
  ModelConfig config;
};

std::vector<Case> cases() {
  return {{"tiny Gemma 2", tiny_gemma2()},
          {"Gemma 2 2B", small_gemma2_2b()},
          {"Gemma 2 with a head of its own", untied(tiny_gemma2())},
          {"tiny Gemma 3", tiny_gemma3()},
          {"Gemma 3 1B", small_gemma3_1b()}};
}

// Away from the initial symmetry: norms are not all one.
std::unique_ptr<LanguageModel> some_model(const ModelConfig& config) {
  auto model = make_model(config, 7, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->module().named_parameters()) {
    const at::Tensor index = at::arange(item.value().numel(), at::kDouble);
    item.value().add_(index.mul(0.7).sin().mul(0.1).view(item.value().sizes()));
  }
  return model;
}

at::Tensor some_tokens(const ModelConfig& config, int64_t step) {
  const int64_t T = config.sequence_length;
  return at::arange(2 * T, at::kLong).mul(step).remainder(config.vocab_size).view({2, T});
}

void write_model(const std::filesystem::path& folder, const Case& one) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json")
      << hugging_face_config(one.config, at::kDouble, /*end_of_document=*/std::nullopt);
  const auto model = some_model(one.config);
  TensorMap weights;
  for (const auto& item : model->module().named_parameters()) {
    weights[item.key()] = item.value().detach();
  }
  checkpoint::write_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
  checkpoint::write_safetensors(
      folder / "tokens.safetensors",
      {{"tokens", some_tokens(one.config, 7)}, {"targets", some_tokens(one.config, 5)}}, {});
}

// transformers computes norms, angles and the softmax in fp32 whatever the weights are: three
// roundings of 2^-24 a layer, of numbers that are at most some hundred times the result.
constexpr double kTolerance = 1e-5;

// The gradient of a head's norm is summed over all tokens and heads, from terms as large as those
// of its projection.
double scale_of(const std::string& name, const TensorMap& gradients) {
  const auto largest = [&](const std::string& of) {
    return gradients.at(of).abs().max().item<double>();
  };
  const size_t norm = name.find("_norm.weight");
  const bool is_of_heads = norm != name.npos && name.find(".self_attn.") != name.npos;
  if (!is_of_heads) return largest(name);
  return std::max(largest(name), largest(name.substr(0, norm) + "_proj.weight"));
}

void expect_result(const std::filesystem::path& folder, const Case& one) {
  const TensorMap expected = harness::read_tensors(folder / "result.safetensors");
  const TensorMap gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_model(one.config);
  const at::Tensor tokens = some_tokens(one.config, 7);
  harness::assert_close(model->logits(tokens).detach(), expected.at("logits"), kTolerance,
                        kTolerance, "logits");
  const at::Tensor loss = model->loss(tokens, some_tokens(one.config, 5)).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), kTolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  for (const auto& item : model->module().named_parameters()) {
    ASSERT_TRUE(gradients.contains(item.key())) << item.key();
    harness::assert_close(item.value().grad(), gradients.at(item.key()), 0,
                          kTolerance * scale_of(item.key(), gradients), item.key());
  }
}

TEST(Gemma, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_TRANSFORMERS_REFERENCE, "'");
  for (const Case& one : cases()) {
    write_model(folder.path() / one.name, one);
    command += concat(" '", (folder.path() / one.name).string(), "'");
  }
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    expect_result(folder.path() / one.name, one);
  }
}

// 1 + w is 1: a model begins with norms that only norm.
TEST(Gemma, NormsBeginAtZero) {
  const auto model = make_model(tiny_gemma2(), 1, at::kFloat);
  int norms = 0;
  for (const auto& item : model->module().named_parameters()) {
    if (item.key().find("norm.") == std::string::npos) continue;
    EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();
    ++norms;
  }
  EXPECT_EQ(norms, 4 * 3 + 1);
}

// sqrt(24) is 4.898979..., and 4.90625 in bf16.
TEST(Gemma, TheScaleOfTheEmbeddingIsRoundedToTheDtype) {
  ModelConfig config = tiny_gemma2();
  config.layers = 1;
  const auto model = make_model(config, 1, at::kBFloat16, {}, {.has_head = false});
  const at::NoGradGuard no_grad;
  at::Tensor table;
  for (const auto& item : model->module().named_parameters()) {
    const bool is_table = item.key() == "model.embed_tokens.weight";
    if (is_table) table = item.value();
    // Branches that add nothing.
    if (item.key().find("_proj.") != std::string::npos) item.value().zero_();
  }
  const at::Tensor tokens = some_tokens(config, 7);
  const at::Tensor expected = (table.index({tokens}).to(at::kFloat) * 4.90625).to(at::kBFloat16);
  harness::assert_same_bits(model->forward_part({.tokens_BT = tokens}).hidden, expected,
                            "embedded");
}

}  // namespace
}  // namespace trireme::model
