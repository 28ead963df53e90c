// Ends the process when a rank does not get out of its groups in time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::cli::inline internal {

// Destructors of ours do not wait without bound, but a disk, a connection to a host that is gone,
// or a long computation may hold a rank. Then its process ends with exit code 3 and a line that
// says so, and the agent starts it again. Lives as long as the rank's groups.
class LeaveLimit {
 public:
  LeaveLimit();
  // The rank is out.
  ~LeaveLimit();
  LeaveLimit(const LeaveLimit&) = delete;
  LeaveLimit& operator=(const LeaveLimit&) = delete;

  // From now on the rank has `patience` to get out. The first call counts. Thread safe.
  void begin(std::chrono::nanoseconds patience);

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool has_left_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace trireme::cli::inline internal
