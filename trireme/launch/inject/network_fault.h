// A fault in this process's network namespace, made with `ip` and `tc` (iproute2): fixed arguments,
// no shell. Needs CAP_NET_ADMIN; delay and loss also need the kernel's netem. On a host of
// `trireme network` that network makes delay and loss, and they need neither.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/launch/inject/injection.h"

namespace trireme::launch {

class NetworkFault {
 public:
  // Begins kPartition, kDelay or kLoss on `device`.
  // Throws: Error, one line, when the system refuses; then nothing has changed
  NetworkFault(const Injection& injection, std::string device);
  // Ends it, if end() has not.
  ~NetworkFault();
  NetworkFault(const NetworkFault&) = delete;
  NetworkFault& operator=(const NetworkFault&) = delete;

  // The device is up again with the routes that it had.
  // Throws: Error, one line
  void end();
  const std::string& device() const { return device_; }

 private:
  InjectedFault fault_;
  std::string device_;
  std::vector<std::vector<std::string>> routes_;  // `ip` arguments that restore them
  bool has_ended_ = false;
};

// The device of the default route, else the only one besides the loopback that is up.
// Throws: Error, one line, when there is none or a choice
std::string network_device();

// Whether this process shares the network of process 1: its faults are those of the whole machine,
// and stay if this process is killed.
bool is_network_of_machine();

// arguments: the program, searched in /usr/sbin, /sbin, /usr/bin and /bin, and its arguments. No
// shell. Returns its output and errors, at most 64 KiB, without the last line end.
// Throws: Error, one line with the command's own first line, when it cannot be started, fails, or
//         takes longer than `limit`, after which it is killed
std::string run_command(const std::vector<std::string>& arguments,
                        std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace trireme::launch
