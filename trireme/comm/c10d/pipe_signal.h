// Prevents SIGPIPE from killing this process when a peer dies. Gloo writes to sockets without
// MSG_NOSIGNAL, so a write after the peer is gone raises it.
#pragma once

#include <csignal>

namespace trireme::comm::inline internal {

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

}  // namespace trireme::comm::inline internal
