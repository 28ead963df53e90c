// Writes folders that torch.distributed.checkpoint (DCP) loads: a ".metadata" and one
// "__0_0.distcp" with every tensor as one chunk, for FSDP2 and torchtitan at any number of ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint {

// Writes `folder`, which appears at once and complete, and is on the disk when the call returns. A
// kill leaves ".<name>.tmp" beside it, which the next write to it removes.
// tensors: by the names that they get, which may have dots
// read:    called for each name in order; any device and strides, the dtype and shape announced
// Memory:  one tensor
// Throws:  CheckpointError when a name or dtype cannot be written; ConfigError when `folder` is
//          neither new nor empty; Error when it cannot be written; what `read` throws
void write_dcp(const std::filesystem::path& folder,
               const std::map<std::string, SourceTensor>& tensors,
               const std::function<at::Tensor(const std::string& name)>& read);

}  // namespace trireme::checkpoint
