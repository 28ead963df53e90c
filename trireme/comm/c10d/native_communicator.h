// Makes a c10d backend of a device (NCCL) a Communicator through the backend's own collectives, so
// that tensors stay on the device. Where c10d_communicator.h promises rank order and every dtype,
// this promises what the backend does: its reduction order is its own, and may change with size and
// number of ranks. Pairs that it does not reduce are refused, never approximated.
// Cost: the backend's. Uneven blocks: all_gather is one broadcast a rank, reduce_scatter one reduce
// a rank; even ones are one call.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/c10d/c10d_communicator.h"
#include "trireme/comm/c10d/completion_watch.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {

struct NativeOptions {
  std::string name = "world";                           // in errors
  std::string transport = "c10d";                       // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  c10::DeviceType device = c10::DeviceType::CPU;        // where its tensors are
  // What the backend reduces, of all that reduce_kernel.h defines.
  std::function<bool(c10::ScalarType, ReduceOp)> reduces;
  GroupRecorder recorder = {};  // where this rank's calls are recorded
  // Sees when they are done, for all of a rank's groups; null: made where calls are recorded.
  std::shared_ptr<CompletionWatch> watch = nullptr;
};

// wait() of its work orders what follows behind the operation; on a GPU that is the current
// stream, not the calling thread. Background work progresses as the backend lets it. A call is
// recorded as done when the backend's work is, in the background too (completion_watch.h).
// Collective: all `size` ranks
// Throws:     CommError when the ranks do not find each other, in the backend's words
std::unique_ptr<Communicator> make_native_group(const C10dBackendMaker& make_backend,
                                                const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size, const NativeOptions& options);

}  // namespace trireme::comm
