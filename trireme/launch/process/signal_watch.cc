#include "trireme/launch/process/signal_watch.h"

#include <algorithm>
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

SignalWatch::SignalWatch(std::initializer_list<int> signals) {
  // A parent may have left SIGCHLD ignored. The kernel would then take ended children away before
  // anybody could wait for them.
  if (std::ranges::count(signals, SIGCHLD) > 0 && is_ignored(SIGCHLD)) {
    takes_children_ = std::signal(SIGCHLD, SIG_DFL) == SIG_IGN;
  }
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : signals) {
    // An ignored signal that is blocked arrives all the same, and nohup would not help.
    if (signal == SIGCHLD || !is_ignored(signal)) sigaddset(&watched, signal);
  }
  descriptor_ = Descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.is_open()) throw Error(concat("cannot watch signals: ", std::strerror(errno)));
  // After the descriptor is there, so that a failure leaves the mask as it was.
  pthread_sigmask(SIG_BLOCK, &watched, &previous_);
}

SignalWatch::~SignalWatch() {
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  if (takes_children_) std::signal(SIGCHLD, SIG_IGN);
}

std::optional<int> SignalWatch::next() const {
  signalfd_siginfo info{};
  const ssize_t size = read(descriptor_.get(), &info, sizeof(info));
  return size == sizeof(info) ? std::optional(static_cast<int>(info.ssi_signo)) : std::nullopt;
}

}  // namespace trireme::launch
