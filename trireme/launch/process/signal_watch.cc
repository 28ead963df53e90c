#include "trireme/launch/process/signal_watch.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch {

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

inline namespace internal {

SignalWatch::SignalWatch(std::initializer_list<int> signals) {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : signals) {
    if (signal == SIGCHLD || !is_ignored(signal)) sigaddset(&watched, signal);
  }
  descriptor_ = Descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.is_open()) throw Error(concat("cannot watch signals: ", std::strerror(errno)));
  pthread_sigmask(SIG_BLOCK, &watched, &previous_);
}

SignalWatch::~SignalWatch() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

std::optional<int> SignalWatch::next() const {
  signalfd_siginfo info{};
  const ssize_t size = read(descriptor_.get(), &info, sizeof(info));
  return size == sizeof(info) ? std::optional(static_cast<int>(info.ssi_signo)) : std::nullopt;
}

}  // namespace internal
}  // namespace trireme::launch
