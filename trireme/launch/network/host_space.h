// What a host of a network has for itself: network, host name, mounts and /dev/shm, by which
// Trireme tells hosts apart (comm/hierarchical/host_identity.h). And the mark by which processes of
// a network are found.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <sys/types.h>

namespace trireme::launch {

// A thread lives in the namespaces for as long as the object. The namespaces have no name and no
// file: they end with the last process in them, even after `kill -9`.
class HostSpace {
 public:
  // Throws: ConfigError, one line, without the right to make namespaces
  explicit HostSpace(const std::string& name);
  HostSpace(const HostSpace&) = delete;
  HostSpace& operator=(const HostSpace&) = delete;
  ~HostSpace();

  // Runs `work` within the namespaces. A child that it starts is in them, and the kernel kills the
  // child when this object or this process ends. Throws what `work` throws.
  void run(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // none: nothing to do
  std::exception_ptr error_;
  bool has_ended_ = false;
  std::thread thread_;  // last: it uses the others
};

// The environment variable that every process of a network has.
inline constexpr const char* kNetworkVariable = "TRIREME_NETWORK";
// Its value for the networks of this process.
std::string network_mark();
// Kills the processes that have this network's mark, and waits until they have ended.
// Returns how many there were.
int kill_marked(const std::string& mark);
// The same for every network whose process is no more, as after its `kill -9`. A process that has
// left its group and outlived it is one of those.
int kill_left_over();

}  // namespace trireme::launch
