// Ranks with one GPU each, over libtorch's NCCL. native_communicator.h states what it promises.
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

class Cancellation;

struct NcclOptions {
  std::string name = "world";                            // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;   // for operations that set none
  GroupRecorder recorder = {};                           // records this rank's calls
  std::shared_ptr<Cancellation> cancellation = nullptr;  // as in GroupOptions
};

// False when this build has no NCCL (TRIREME_WITH_NCCL, which needs a libtorch with CUDA).
bool has_nccl();

// Uses the current CUDA device, which must differ between ranks. Refuses all operations but sum,
// product, min, max and average, 16-bit integers, and a recv from any rank.
// Collective: all `size` ranks
// Throws:     ConfigError without NCCL; CommError when the ranks do not find each other
std::unique_ptr<Communicator> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const NcclOptions& options = {});

}  // namespace trireme::comm
