// A model in Hugging Face's form: the class that loads it, and its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/family/hugging_face_key.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  // Our parameters, all of one shape, joined along their output dimension in this order.
  std::vector<std::string> parts;
  // true: Hugging Face stores [in, out]. Ours are [out, in].
  bool is_transposed = false;
  // The tensor is this index of the parameters' first dimension, one expert of all; -1: they are
  // whole.
  int64_t slice = -1;
  // Some files store the two rows of each pair that rotary positions turn next to each other, where
  // ours are halves apart: of every `head_rows` rows the last `rotary_rows`. 0: there are none.
  int64_t head_rows = 0;
  int64_t rotary_rows = 0;
};

// A tensor that is one parameter, under the parameter's own name.
inline HuggingFaceTensor own_tensor(const ParameterPlan& parameter) {
  return {parameter.name, parameter.layout.whole_shape(), {parameter.name}};
}

struct HuggingFaceForm {
  const HuggingFaceKind* kind;
  // In the plan's order. Each parameter, or each slice of it, is part of exactly one tensor.
  std::vector<HuggingFaceTensor> tensors{};
};

}  // namespace trireme::model
