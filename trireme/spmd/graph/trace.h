// Traces a step of any torch::nn::Module, forward and backward, without memory for its tensors and
// without ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/spmd/graph/graph.h"

namespace torch::nn {
class Module;
}

namespace trireme::spmd {

// A tensor on the CPU that has sizes and no memory. Operators on it can only be traced.
// name: of an input of the step, for its GraphValue; outlives the trace. Null: none
at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype,
                          const std::string* name = nullptr);

// What `make` returns, such as a pointer to a module, whose new tensors have no memory:
// `[] { return std::make_shared<Net>(1024); }`.
// Throws: ConfigError when it reads a value
template <typename Make>
auto made_without_memory(const Make& make);

// loss: makes the step's inputs with without_memory(), runs the module and returns a scalar. It is
// called twice.
// Throws: ConfigError with the operator when the step reads a value or an operator's result depends
//         on values, and with the first difference when the two calls run other operators
Graph trace_step(torch::nn::Module& module, const std::function<at::Tensor()>& loss);

namespace internal {
// Traces what `run` does and forgets it.
void run_without_memory(const std::function<void()>& run);
}  // namespace internal

template <typename Make>
auto made_without_memory(const Make& make) {
  std::optional<decltype(make())> made;
  internal::run_without_memory([&] { made.emplace(make()); });
  return std::move(*made);
}

}  // namespace trireme::spmd
