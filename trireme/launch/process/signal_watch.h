// The signals of a launcher, taken one at a time in its own loop, and the exit codes by which it
// tells what a worker's end means.
#pragma once

#include <initializer_list>
#include <optional>

#include <signal.h>

#include "trireme/base/file/file.h"

namespace trireme::launch {

// Whether this process ignores the signal, as with SIGHUP under nohup.
bool is_ignored(int signal);

// Blocks the signals in this thread for its lifetime; threads made meanwhile inherit that. Ignored
// signals stay ignored, but for SIGCHLD. If they were blocked, they would arrive after all.
class SignalWatch {
 public:
  // Throws: Error when the kernel gives no descriptor
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Readable, for poll(), when a signal has come.
  int descriptor() const { return descriptor_.get(); }
  // The next signal that has come. Never blocks.
  std::optional<int> next() const;

 private:
  Descriptor descriptor_;
  sigset_t previous_;
  bool takes_children_ = false;  // SIGCHLD was ignored before
};

inline constexpr int kUserError = 2;      // the user can fix it: config, arguments, data
inline constexpr int kPeerLost = 3;       // another rank was lost; the run can be started again
inline constexpr int kBadCheckpoint = 4;  // a checkpoint cannot be used
inline constexpr int kNotFound = 127;     // of shells and of this launcher: no such program

}  // namespace trireme::launch
