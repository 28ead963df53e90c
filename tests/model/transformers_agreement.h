// Our models against Hugging Face's transformers, which loads our weights with the config.json that
// an export writes: logits, loss and every gradient.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
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

using TensorMap = std::map<std::string, at::Tensor>;

struct TransformersCase {
  std::string name;
  ModelConfig config;
};

// Away from the initial symmetry: norms are not all one.
inline std::unique_ptr<LanguageModel> some_model(const ModelConfig& config) {
  auto model = make_model(config, 7, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->module().named_parameters()) {
    const at::Tensor index = at::arange(item.value().numel(), at::kDouble);
    item.value().add_(index.mul(0.7).sin().mul(0.1).view(item.value().sizes()));
  }
  return model;
}

inline at::Tensor some_tokens(const ModelConfig& config, int64_t step) {
  const int64_t T = config.sequence_length;
  return at::arange(2 * T, at::kLong).mul(step).remainder(config.vocab_size).view({2, T});
}

inline void write_model(const std::filesystem::path& folder, const TransformersCase& one) {
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
inline constexpr double kTransformersTolerance = 1e-5;

// The gradient of a head's norm is summed over all tokens and heads, from terms as large as those
// of its projection.
inline double scale_of(const std::string& name, const TensorMap& gradients) {
  const auto largest = [&](const std::string& of) {
    return gradients.at(of).abs().max().item<double>();
  };
  const size_t norm = name.find("_norm.weight");
  const bool is_of_heads = norm != name.npos && name.find(".self_attn.") != name.npos;
  if (!is_of_heads) return largest(name);
  return std::max(largest(name), largest(name.substr(0, norm) + "_proj.weight"));
}

inline void expect_result(const std::filesystem::path& folder, const TransformersCase& one) {
  const TensorMap expected = harness::read_tensors(folder / "result.safetensors");
  const TensorMap gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_model(one.config);
  const at::Tensor tokens = some_tokens(one.config, 7);
  harness::assert_close(model->logits(tokens).detach(), expected.at("logits"),
                        kTransformersTolerance, kTransformersTolerance, "logits");
  const at::Tensor loss = model->loss(tokens, some_tokens(one.config, 5)).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), kTransformersTolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  for (const auto& item : model->module().named_parameters()) {
    ASSERT_TRUE(gradients.contains(item.key())) << item.key();
    harness::assert_close(item.value().grad(), gradients.at(item.key()), 0,
                          kTransformersTolerance * scale_of(item.key(), gradients), item.key());
  }
}

inline void expect_agreement_with_transformers(const std::vector<TransformersCase>& cases) {
  const harness::TemporaryFolder folder;
  std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_TRANSFORMERS_REFERENCE, "'");
  for (const TransformersCase& one : cases) {
    write_model(folder.path() / one.name, one);
    command += concat(" '", (folder.path() / one.name).string(), "'");
  }
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (const TransformersCase& one : cases) {
    SCOPED_TRACE(one.name);
    expect_result(folder.path() / one.name, one);
  }
}

}  // namespace trireme::model
