// Makes any backend of c10d (gloo, or one of a plug-in) a Communicator of CPU tensors. Of the
// backend only send, recv and recvAnysource of bytes are used: they are right for every size, while
// reductions differ from backend to backend (Gloo's reduce_scatter gives the sum when asked for the
// average, has no 16-bit types everywhere and promises no order). What is promised instead stands
// in message_communicator.h.
#pragma once

#include <chrono>
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

// Makes one rank's end of a backend; `store` is that group's alone.
using C10dBackendMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout)>;

struct C10dOptions {
  std::string name = "world";                           // in errors
  std::string transport = "c10d";                       // in errors and transport_of()
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  GroupRecorder recorder = {};                          // where this rank's calls are recorded
};

// A group over `make_backend`'s backend, and the same for every split of it. `store` is where the
// ranks of new groups find each other and where a failing rank leaves word; it lives as long as the
// group.
// Collective: all `size` ranks
// Throws:     CommError when the ranks do not find each other, in the backend's words
std::unique_ptr<Communicator> make_c10d_group(const C10dBackendMaker& make_backend,
                                              const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const C10dOptions& options = {});

}  // namespace trireme::comm
