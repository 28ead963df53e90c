#include "trireme/comm/c10d/pipe_signal.h"

#include <cerrno>
#include <ctime>

namespace trireme::comm::inline internal {

NoPipeSignal::NoPipeSignal() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

NoPipeSignal::~NoPipeSignal() {
  const timespec now{};
  // Consumes the signal that this write raised. One that was already pending is left to the
  // program.
  while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace trireme::comm::inline internal
