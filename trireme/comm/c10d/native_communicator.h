// Makes a device's c10d backend (NCCL) a Communicator. It uses the backend's own collectives, so
// tensors stay on the device. It promises what the backend does, not the rank order and dtypes of
// c10d_communicator.h: the reduction order is the backend's and may change with size and number of
// ranks. (operation, dtype) pairs that the backend does not reduce are refused, never approximated.
// Cost: the backend's. With uneven blocks, all_gather is one broadcast per rank and reduce_scatter
// one reduce per rank. With even blocks each is one call.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/c10d/c10d_communicator.h"
#include "trireme/comm/c10d/completion_watch.h"
#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {

struct NativeOptions {
  std::string name = "world";                           // in errors
  std::string transport = "c10d";                       // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // for operations that set none
  c10::DeviceType device = c10::DeviceType::CPU;        // where its tensors are
  // Which of the reductions in reduce_kernel.h the backend supports.
  std::function<bool(c10::ScalarType, ReduceOp)> reduces;
  GroupRecorder recorder = {};                           // records this rank's calls
  std::shared_ptr<Cancellation> cancellation = nullptr;  // as in GroupOptions
  // Notices when recorded calls are done, for all groups of a rank; null: made if calls are
  // recorded.
  std::shared_ptr<CompletionWatch> watch = nullptr;
};

// wait() of its work orders later operations after it, on a GPU on the current stream and not in
// the calling thread. Background work progresses as the backend lets it. A call is recorded as done
// when the backend's work is, in the background too (completion_watch.h).
// Collective: all `size` ranks
// Throws:     CommError when the ranks do not find each other, in the backend's words
std::unique_ptr<Communicator> make_native_group(const C10dBackendMaker& make_backend,
                                                const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size, const NativeOptions& options);

}  // namespace trireme::comm
