// A part of a model that runs as a whole, usually a block. ZeRO-3 gathers and releases its
// parameters together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

struct Unit {
  std::string name;
  std::vector<at::Tensor> parameters;
  // false: its backward does not read the weights, like that of an embedding. They are not gathered
  // again.
  bool weights_in_backward = true;
};

using UnitForward = std::function<at::Tensor(const at::Tensor&)>;
// Runs forward(x) as unit number `unit`; see DistributedDataParallel::run().
using RunUnit =
    std::function<at::Tensor(size_t unit, const at::Tensor& x, const UnitForward& forward)>;

inline at::Tensor run_directly(size_t /*unit*/, const at::Tensor& x, const UnitForward& forward) {
  return forward(x);
}

}  // namespace trireme::parallel
