// Our models against Hugging Face's transformers, which loads our weights with the config.json that
// an export writes: logits, loss and every gradient.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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

// transformers computes norms, angles and the softmax in fp32 whatever the weights are: three
// roundings of 2^-24 a layer, of numbers that are at most some hundred times the result.
inline constexpr double kTransformersTolerance = 1e-5;
// Of classes that transformers_reference.py makes compute in fp64: as many roundings of 2^-53, and
// those of sums over thousands of terms.
inline constexpr double kExactTolerance = 1e-10;

struct TransformersCase {
  std::string name;
  ModelConfig config;
  double tolerance = kTransformersTolerance;
};

// What `of` makes of each of our parameters, under the names and in the shapes of transformers.
template <typename Of>
TensorMap in_form_of_transformers(LanguageModel& model, const ModelConfig& config, const Of& of) {
  TensorMap own, result;
  for (const auto& item : model.module().named_parameters()) own[item.key()] = of(item.value());
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(config)) {
    std::vector<at::Tensor> parts;
    for (const std::string& part : tensor.parts) parts.push_back(own.at(part));
    result[tensor.name] = join_parts(tensor, parts).contiguous();
  }
  return result;
}

// Away from the initial symmetry: norms are not all one, and biases not zero.
inline std::unique_ptr<LanguageModel> some_model(const ModelConfig& config,
                                                 at::ScalarType dtype = at::kDouble) {
  auto model = make_model(config, 7, dtype);
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

// A folder as the reference reads it. weights: under the names of files; inputs: of the comparison
inline void write_reference_folder(const std::filesystem::path& folder, const ModelConfig& config,
                                   at::ScalarType dtype, const TensorMap& weights,
                                   const TensorMap& inputs) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json")
      << hugging_face_config(config, dtype, /*end_of_document=*/std::nullopt);
  checkpoint::write_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
  checkpoint::write_safetensors(folder / "tokens.safetensors", inputs, {});
}
// The same of a model whose parameters lie in files as they are. name_of: their names there
inline void write_reference_folder(
    const std::filesystem::path& folder, LanguageModel& model, at::ScalarType dtype,
    const TensorMap& inputs,
    const std::function<std::string(const std::string&)>& name_of = std::identity()) {
  TensorMap weights;
  for (const auto& item : model.module().named_parameters())
    weights[name_of(item.key())] = item.value().detach();
  write_reference_folder(folder, model.config(), dtype, weights, inputs);
}

// Lets transformers compute each folder's result.
inline void run_reference(const std::vector<std::filesystem::path>& folders) {
  std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_TRANSFORMERS_REFERENCE, "'");
  for (const std::filesystem::path& folder : folders) command += concat(" '", folder.string(), "'");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// The largest of all numbers.
inline double largest_of(const TensorMap& tensors) {
  double largest = 0;
  for (const auto& [name, tensor] : tensors)
    largest = std::max(largest, tensor.abs().max().item<double>());
  return largest;
}

inline void write_model(const std::filesystem::path& folder, const TransformersCase& one) {
  const auto model = some_model(one.config);
  write_reference_folder(
      folder, one.config, at::kDouble,
      in_form_of_transformers(*model, one.config,
                              [](const at::Tensor& parameter) { return parameter.detach(); }),
      {{"tokens", some_tokens(one.config, 7)}, {"targets", some_tokens(one.config, 5)}});
}

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
  harness::assert_close(model->logits(tokens).detach(), expected.at("logits"), one.tolerance,
                        one.tolerance, "logits");
  const at::Tensor loss = model->loss(tokens, some_tokens(one.config, 5)).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), one.tolerance, 0, "loss");
  const TensorMap own = in_form_of_transformers(
      *model, one.config, [](const at::Tensor& parameter) { return parameter.grad(); });
  EXPECT_EQ(gradients.size(), own.size());
  for (const auto& [name, gradient] : own) {
    ASSERT_TRUE(gradients.contains(name)) << name;
    harness::assert_close(gradient, gradients.at(name), 0,
                          one.tolerance * scale_of(name, gradients), name);
  }
}

inline void expect_agreement_with_transformers(const std::vector<TransformersCase>& cases) {
  const harness::TemporaryFolder folder;
  std::vector<std::filesystem::path> folders;
  for (const TransformersCase& one : cases) {
    folders.push_back(folder.path() / one.name);
    write_model(folders.back(), one);
  }
  ASSERT_NO_FATAL_FAILURE(run_reference(folders));
  for (const TransformersCase& one : cases) {
    SCOPED_TRACE(one.name);
    expect_result(folder.path() / one.name, one);
  }
}

}  // namespace trireme::model
