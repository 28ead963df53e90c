// A family in Hugging Face's form: the class that loads it, its keys of config.json and its
// tensors.
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
  // Our parameters, joined along their output dimension in this order.
  std::vector<std::string> parts;
  // true: Hugging Face stores [in, out]. Ours are [out, in].
  bool is_transposed = false;
  // The tensor is this index of the parameters' first dimension, one expert of all; -1: they are
  // whole.
  int64_t slice = -1;
};

// A tensor that is one parameter, under the parameter's own name.
inline HuggingFaceTensor own_tensor(const ParameterPlan& parameter) {
  return {parameter.name, parameter.layout.whole_shape(), {parameter.name}};
}

using HuggingFaceValue =
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<int64_t>>;

struct HuggingFaceForm {
  std::string architecture;  // the transformers class that loads it
  // The keys of config.json that differ between families, in the order of the file.
  std::vector<std::pair<std::string, HuggingFaceValue>> config;
  // In the plan's order. Each parameter, or each slice of it, is part of exactly one tensor.
  std::vector<HuggingFaceTensor> tensors;
};

}  // namespace trireme::model
