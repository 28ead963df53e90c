// Modules of torch as users write them, with their inputs, to be run whole and annotated.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/spmd/annotate.h"

namespace trireme::spmd::spmd_test {

struct ModuleResult {
  at::Tensor y;
  std::map<std::string, at::Tensor> gradients;  // of parameters and of inputs, "input 0"
};

struct ModuleCase {
  std::string name;
  std::vector<at::Tensor> inputs;
  // The parameters' names and sizes.
  std::function<std::map<std::string, std::vector<int64_t>>()> parameters;
  // Forward and backward of a weighted sum of the output. mesh: null: on one rank without any
  std::function<ModuleResult(const mesh::DeviceMesh* mesh, const Annotations& notes)> run;
};

const std::vector<ModuleCase>& module_cases();

}  // namespace trireme::spmd::spmd_test
