// The weights of a linear layer, [out, in] as in torch and Hugging Face, and of its low-rank
// adapter if it has one. The functions that multiply by them, on one rank or several, are in
// parallel/tensor.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/adapter_config.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {

class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, at::ScalarType dtype);

  // Gives the layer an adapter: y gains scale * dropout(x) A^T B^T. See parallel::Adapter.
  // place: the name of its dropout, the same on every rank. columns: those of the whole weight that
  // this layer has
  void add_adapter(const AdapterConfig& lora, std::string place, const CutColumns& columns);
  // Keeps the weight, which is frozen, in another format. It is then zero, and its parameters are
  // those that ModelPlan::add_adapters() names.
  void freeze_as(WeightFormat format);
  // For the forward of this batch, which decides what the adapter drops. The batch must outlive it.
  parallel::LinearWeight weights(const TokenBatch& batch) const;

  at::Tensor weight;               // [out, in]; undefined: frozen as codes with scales
  WeightCodes codes;               // undefined: the weight is not frozen in another format
  at::Tensor bias;                 // [out]; undefined without bias
  at::Tensor lora_magnitude;       // [out]: kAdapterMagnitude; undefined without magnitudes
  std::shared_ptr<Linear> lora_A;  // [r, in]; null without adapter
  std::shared_ptr<Linear> lora_B;  // [out, r]

 private:
  double adapter_scale_ = 1;
  Dropout adapter_dropout_;
  CutColumns adapter_columns_;
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
