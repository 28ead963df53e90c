#include "trireme/cli/train/leave_limit.h"

#include <unistd.h>

#include "trireme/cli/commands.h"

namespace trireme::cli::inline internal {

LeaveLimit::LeaveLimit() : thread_([this] { watch(); }) {}

LeaveLimit::~LeaveLimit() {
  {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LeaveLimit::begin(std::chrono::nanoseconds patience) {
  const std::lock_guard lock(mutex_);
  if (!deadline_) deadline_ = std::chrono::steady_clock::now() + patience;
  changed_.notify_all();
}

void LeaveLimit::watch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_left_ || deadline_; });
  if (has_left_ || changed_.wait_until(lock, *deadline_, [this] { return has_left_; })) return;
  report(kPeerLost, "did not leave its groups in time after the loss of a rank");
  ::_exit(kPeerLost);
}

}  // namespace trireme::cli::inline internal
