// The form in which the package peft stores adapters: a layer of transformers' model has one, and
// several of our layers may be that layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/model_config.h"

namespace trireme::tasks {

inline constexpr const char* kPeftPrefix = "base_model.model.";
inline constexpr const char* kPeftMagnitude = ".lora_magnitude_vector";  // after a module's name
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";
inline constexpr const char* kPeftConfig = "adapter_config.json";

// The name of a weight's module, without ".weight"; any other name as it is.
std::string module_of(const std::string& name);

// A linear layer of transformers.
struct PeftMatrix {
  model::HuggingFaceTensor tensor;
  std::vector<size_t> parts{};  // indices in tensor.parts of our layers that have an adapter

  std::string module() const { return module_of(tensor.name); }
  int64_t in() const { return tensor.shape.at(tensor.is_transposed ? 0 : 1); }
  int64_t out() const { return tensor.shape.at(tensor.is_transposed ? 1 : 0); }
  // The first output of our layer tensor.parts[part], and their number.
  mesh::Range rows_of(size_t part) const;
};

// A stack of all experts' weights of transformers, [E, out, in] or transposed, with an adapter: A
// is [E*r, in] in the file and B [out, r*E], in whose columns the experts change first.
struct PeftStack {
  std::string name;                    // "model.layers.0.mlp.experts.gate_up_proj"
  std::string module;                  // of its adapter; the first of two is in "base_layer"
  std::vector<std::string> weights{};  // our stacks: gate and up, or down
  bool alternates = false;             // see HuggingFaceTensor
  int64_t experts = 0;
  int64_t in = 0;
  int64_t out = 0;  // of all weights

  // parts: B of each of our stacks, [E, F, r] -> [out, r*E]
  at::Tensor joined_b(const std::vector<at::Tensor>& parts) const;
  // [out, r*E] -> B of each of our stacks
  std::vector<at::Tensor> split_b(const at::Tensor& whole) const;
};

struct PeftForm {
  std::vector<PeftMatrix> matrices{};             // those with adapters
  std::vector<PeftStack> stacks{};                // likewise
  std::vector<model::HuggingFaceTensor> saved{};  // those that are trained themselves
  std::vector<std::string> targets{};             // target_modules
  std::vector<std::string> parameters{};          // target_parameters
};

// Throws: ConfigError when lora.also_train names a part of a matrix, one that has an adapter, or
//         what peft cannot save
PeftForm peft_form(const model::ModelConfig& config);

}  // namespace trireme::tasks
