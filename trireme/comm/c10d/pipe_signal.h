// Keeps a peer's death from being this process's: Gloo writes to sockets without MSG_NOSIGNAL, so
// that writing to one whose other end is gone raises SIGPIPE, which by default kills.
#pragma once

#include <csignal>

namespace trireme::comm {

// While it lives, such a write of this thread, or of a thread that it starts meanwhile, is an error
// like any other. What the program does about SIGPIPE elsewhere stays as it is.
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
