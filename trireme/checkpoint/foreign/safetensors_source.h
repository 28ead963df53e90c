// A safetensors file that another program wrote, as a source of tensors.
#pragma once

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint::inline internal {

class SafetensorsSource : public TensorSource {
 public:
  // Throws: as SafetensorsReader
  explicit SafetensorsSource(const std::filesystem::path& path);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override { return reader_.read(name); }
  std::string kind() const override { return "a safetensors file"; }

 private:
  SafetensorsReader reader_;
  std::map<std::string, SourceTensor> tensors_;
};

}  // namespace trireme::checkpoint::inline internal
