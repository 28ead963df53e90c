// The form in which the package peft stores adapters: a layer of transformers' model has one, and
// several of our layers may be that layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

struct PeftForm {
  std::vector<PeftMatrix> matrices{};             // those with adapters
  std::vector<model::HuggingFaceTensor> saved{};  // those that are trained themselves
  std::vector<std::string> targets{};             // target_modules
};

// Throws: ConfigError when lora.also_train names a part of a matrix, or one that has an adapter
PeftForm peft_form(const model::ModelConfig& config);

}  // namespace trireme::tasks
