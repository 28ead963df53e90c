// The weights of a linear layer, [out, in] as in torch and Hugging Face. The functions that
// multiply by them, on one rank or several, are in parallel/tensor.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {

class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, at::ScalarType dtype);

  parallel::LinearWeight weights() const { return {weight, bias}; }

  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out]; undefined without bias
};

// Registers `module` in `parent` under a path such as "output.dense": each part of it but the last
// names a module that has only modules, and is made if `parent` has none.
template <typename Module>
std::shared_ptr<Module> register_at(torch::nn::Module& parent, std::string_view path,
                                    std::shared_ptr<Module> module) {
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  if (dot == path.npos) return parent.register_module(name, std::move(module));
  const auto children = parent.named_children();
  const auto* const found = children.find(name);
  torch::nn::Module& folder =
      found != nullptr ? **found
                       : *parent.register_module(name, std::make_shared<torch::nn::Module>());
  return register_at(folder, path.substr(dot + 1), std::move(module));
}

}  // namespace trireme::model
