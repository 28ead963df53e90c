// Writes folders that torch.distributed.checkpoint (DCP) loads: a ".metadata" and one
// "__0_0.distcp" with every tensor as one chunk, for FSDP2 and torchtitan at any number of ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint {

// The files of such a folder.
inline constexpr const char* kDcpMetadata = ".metadata";
inline constexpr const char* kDcpFile = "__0_0.distcp";

// Writes `folder`, which appears at once and complete, and is on the disk when the call returns. A
// kill leaves ".<name>.tmp" beside it, which the next write to it removes.
// tensors: with the names that they get, which may have dots
// read:    called for each name in this order; any device and strides, the dtype and shape
//          announced
// Memory:  one tensor
// Throws:  CheckpointError when a name or dtype cannot be written, or a name is there twice;
//          ConfigError when `folder` is neither new nor empty; Error when it cannot be written;
//          what `read` throws
void write_dcp(const std::filesystem::path& folder,
               const std::vector<std::pair<std::string, SourceTensor>>& tensors,
               const std::function<at::Tensor(const std::string& name)>& read);

}  // namespace trireme::checkpoint
