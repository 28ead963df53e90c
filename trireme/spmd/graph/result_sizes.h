// The sizes of results of operators that libtorch cannot run on tensors of the meta device.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {

struct ResultSizes {
  bool is_defined = true;
  std::vector<int64_t> sizes{};
  at::ScalarType dtype = at::kFloat;
};
using MakeResultSizes = std::vector<ResultSizes> (*)(const OperatorCall& call);

// Null: libtorch can.
MakeResultSizes result_sizes_of(const std::string& name);

}  // namespace trireme::spmd
