// For tests that link trireme::checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/safetensors.h"

namespace trireme::harness {

// Every tensor of a safetensors file, by name.
inline std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& path) {
  const checkpoint::SafetensorsReader reader(path);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& info : reader.tensors()) tensors[info.name] = reader.read(info.name);
  return tensors;
}

}  // namespace trireme::harness
