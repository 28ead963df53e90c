// The signals of a launcher, taken one at a time in its own loop.
#pragma once

#include <initializer_list>
#include <optional>

#include <signal.h>

#include "trireme/base/file/descriptor.h"

namespace trireme::launch {

// Whether this process ignores the signal, as with SIGHUP under nohup.
bool is_ignored(int signal);

inline namespace internal {

// Blocks the signals in this thread for its lifetime; threads made meanwhile inherit that. Ignored
// signals stay ignored. If they were blocked, they would arrive after all.
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
};

}  // namespace internal
}  // namespace trireme::launch
