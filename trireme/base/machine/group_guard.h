// Kills process groups when this process ends, however it ends: by `kill -9` too. On request also
// when it is stopped for too long.
#pragma once

#include <chrono>
#include <mutex>
#include <set>

#include <sys/types.h>

#include "trireme/base/file/file.h"

namespace trireme {

// With the first group it starts a shell in a session of its own, which waits for this process's
// end and takes 1 MB of memory. Where there is no /bin/sh, nothing is guarded. A process that
// leaves its group is not found. Only renew() may be called from any thread.
class GroupGuard {
 public:
  GroupGuard() = default;
  // Kills the groups that are still guarded. Waits up to a second for their end.
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  // Once it has been called before the first group, the groups are also killed when no other call
  // comes for `lease`, in which the host was not suspended. A shell that has ended is started
  // again with its groups. Without effect where the shell waits by other means than read(), as
  // busybox does.
  void renew(std::chrono::milliseconds lease);
  // Starts the shell if it does not run, so that add() takes no time in which nothing is guarded.
  // Returns the link for add_this_group(), or -1.
  int begin();
  // In a child of this process that leads a group, before exec: this process may be stopped before
  // it can add() it. Safe between fork and exec, and before or after add().
  static void add_this_group(int link);
  void add(pid_t group);
  // Call it before the group's leader is collected: then its number may become another one's.
  void remove(pid_t group);

 private:
  void start();
  bool tell(const char* what, pid_t group);

  std::mutex mutex_;  // of all below
  std::chrono::milliseconds lease_{0};
  Descriptor link_;  // a socket; the shell sees its end
  std::set<pid_t> groups_;
};

}  // namespace trireme
