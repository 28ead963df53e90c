// Makes any c10d backend (gloo, or that of a plug-in) a Communicator of CPU tensors. It uses only
// the backend's send, recv and recvAnysource of bytes, which are right for every size. Reductions
// differ between backends: Gloo's reduce_scatter gives the sum when asked for the average, lacks
// 16-bit types in places and promises no order. message_communicator.h states what this one
// promises.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trireme::comm {

class Cancellation;

// Makes one rank's end of a backend. `store` is used by that group only.
using C10dBackendMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout)>;

struct C10dOptions {
  std::string name = "world";                            // in errors
  std::string transport = "c10d";                        // in errors and transport_of()
  std::chrono::milliseconds timeout = kDefaultTimeout;   // for operations that set none
  GroupRecorder recorder = {};                           // records this rank's calls
  std::shared_ptr<Cancellation> cancellation = nullptr;  // as in GroupOptions
};

// A group over the backend of `make_backend`, which also makes the backends of its splits. `store`
// must live as long as the group: the ranks of new groups meet there, and a failing rank leaves
// word.
// Collective: all `size` ranks
// Throws:     CommError when the ranks do not find each other, in the backend's words
std::unique_ptr<Communicator> make_c10d_group(const C10dBackendMaker& make_backend,
                                              const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const C10dOptions& options = {});

// Prevents SIGPIPE from killing this process when a peer dies. Gloo writes to sockets without
// MSG_NOSIGNAL, so a write after the peer is gone raises it.
// While this object exists, such a write returns an error, on this thread and on threads it starts
// meanwhile. The program's handling of SIGPIPE elsewhere does not change.
class NoPipeSignal {
 public:
  NoPipeSignal();
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

}  // namespace trireme::comm
