// Adapters that the package peft wrote, beside the weights of the model that they were trained for.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/model_config.h"
#include "trireme/tasks/language/foreign/peft_form.h"

namespace trireme::tasks {

// Patterns of the names of all adapters' parameters here, for init.missing and its like.
std::string adapter_patterns();

// The parameters of `base`, those that the adapter has trained with its values, and the adapters.
// Thread safety: as TensorSource
class PeftAdapters : public checkpoint::TensorSource {
 public:
  // folder: with adapter_model.safetensors and adapter_config.json. config: of the model with the
  // adapters that it asks for, which must be the folder's. has_adjacent_pairs: of the base's
  // files, see model::split_parts(). base: under our names
  // Throws: ConfigError when a key of adapter_config.json says another adapter than [lora] does, or
  //         one that there is not here, with the key and what to set; CheckpointError when the
  //         adapter's tensors are not those of the model, or are damaged
  PeftAdapters(std::filesystem::path folder, const model::ModelConfig& config,
               bool has_adjacent_pairs, std::unique_ptr<checkpoint::TensorSource> base);

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override;
  std::string kind() const override { return base_->kind(); }

 private:
  using Read = std::function<at::Tensor()>;

  void add(const std::string& name, at::IntArrayRef shape, Read read);
  void add_matrix(const PeftMatrix& matrix, const model::AdapterConfig& lora, double scale);
  void add_stack(const PeftStack& stack, const model::AdapterConfig& lora, double scale);
  void add_magnitudes(const PeftMatrix& matrix);
  // Of an adapter of so many ranks, which the file scales by `scale`.
  void check_scale(const std::string& stored_a, const model::AdapterConfig& lora,
                   double scale) const;
  // What the adapter has under this name, which must be of that shape.
  void require(const std::string& stored, const std::vector<int64_t>& shape) const;
  at::Tensor read_finite(const std::string& stored) const;

  std::filesystem::path folder_;
  bool has_adjacent_pairs_;
  std::unique_ptr<checkpoint::TensorSource> base_, adapter_;
  PeftForm form_;
  std::map<std::string, checkpoint::SourceTensor> tensors_;
  std::map<std::string, Read> reads_;
};

}  // namespace trireme::tasks
