#include "trireme/checkpoint/foreign/safetensors_source.h"

namespace trireme::checkpoint::inline internal {

SafetensorsSource::SafetensorsSource(const std::filesystem::path& path) : reader_(path) {
  for (const TensorInfo& info : reader_.tensors())
    tensors_.emplace(info.name, SourceTensor{.dtype = info.dtype, .shape = info.shape});
}

}  // namespace trireme::checkpoint::inline internal
