// A family in Hugging Face's form: the class that loads it, its keys of config.json, its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/model/family/plan.h"

namespace trireme::model {

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  // Our parameters that it joins along its output dimension, in this order.
  std::vector<std::string> parts;
  // Hugging Face has [in, out] where ours are [out, in].
  bool is_transposed = false;
};

// A parameter under its own name.
inline HuggingFaceTensor own_tensor(const ParameterPlan& parameter) {
  return {parameter.name, parameter.layout.whole_shape(), {parameter.name}};
}

using HuggingFaceValue = std::variant<std::nullptr_t, bool, int64_t, double, std::string>;

struct HuggingFaceForm {
  std::string architecture;  // the class of transformers
  // The keys of config.json that differ among families, in the order of the file.
  std::vector<std::pair<std::string, HuggingFaceValue>> config;
  // In the plan's order; each parameter is part of exactly one.
  std::vector<HuggingFaceTensor> tensors;
};

}  // namespace trireme::model
