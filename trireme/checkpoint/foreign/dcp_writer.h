// Writes folders that torch.distributed.checkpoint (DCP) loads: a ".metadata" and one
// "__0_0.distcp", for FSDP2 and torchtitan at any number of ranks. A tensor is one chunk, a large
// one several.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// The files of such a folder.
inline constexpr const char* kDcpMetadata = ".metadata";
inline constexpr const char* kDcpFile = "__0_0.distcp";

inline constexpr uint64_t kDcpChunkBytes = uint64_t{256} << 20;  // at most

// Writes `folder`, which appears at once and complete, and is on the disk when the call returns. A
// kill leaves ".<name>.tmp" beside it, which the next write to it removes.
// tensors: with the names that they get, which may have dots
// read:    called for each name in this order, for parts of it that follow each other; any device
//          and strides, the dtype announced
// Memory:  one chunk
// Throws:  CheckpointError when a name or dtype cannot be written, or a name is there twice;
//          ConfigError when `folder` is neither new nor empty; Error when it cannot be written;
//          what `read` throws
void write_dcp(
    const std::filesystem::path& folder,
    const std::vector<std::pair<std::string, SourceTensor>>& tensors,
    const std::function<at::Tensor(const std::string& name, const mesh::Box& part)>& read,
    uint64_t most_chunk_bytes = kDcpChunkBytes);

}  // namespace trireme::checkpoint
