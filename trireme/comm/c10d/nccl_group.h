// Ranks with a GPU each: libtorch's NCCL. What it promises stands in native_communicator.h.
#pragma once

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

struct NcclOptions {
  std::string name = "world";                           // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  GroupRecorder recorder = {};                          // where this rank's calls are recorded
};

// False when this build has no NCCL (TRIREME_WITH_NCCL, which needs a libtorch with CUDA).
bool has_nccl();

// On the current CUDA device, which is another for each rank. All operations but sum, product, min,
// max and average, 16-bit integers, and a recv from any rank are refused.
// Collective: all `size` ranks
// Throws:     ConfigError without NCCL; CommError when the ranks do not find each other
std::unique_ptr<Communicator> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const NcclOptions& options = {});

}  // namespace trireme::comm
