// Runs a command on each host of a made-up network on this machine: `trireme network`.
// Needs root and /dev/net/tun.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/net/paced_link.h"
#include "trireme/launch/network/network_file.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {

struct NetworkOptions {
  NetworkFile network{};
  // {host}, {address}, {index}, {hosts} and {first} in its words are replaced for each host.
  std::vector<std::string> command{};
  Environment environment{};  // of the command, besides that of with_host_variables()
  int output = -1;            // descriptor for the commands' stdout; -1: this process's
  // Between a signal to this process, which the commands get too, and SIGKILL.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
};

struct NetworkReport {
  struct Host {
    std::string name;
    std::string address;
    ExitStatus status{};
  };
  struct Direction {
    std::string from, to;
    comm::LinkCounts counts{};
  };
  std::vector<Host> hosts;
  std::vector<Direction> directions;
  // Of the first command that failed, 128 + the number of a signal that ended it or this; 0.
  int exit_code = 0;
};

// The command of host number `index`.
std::vector<std::string> command_of_host(const NetworkOptions& options, size_t index);

// Adds what tells `trireme run` and torchrun which host of how many this is and where the first
// one is: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT; and
// TRIREME_TOKEN = `token`, unless the user has set one. Removes what an outer job says of itself.
Environment with_host_variables(Environment environment, const NetworkFile& network, size_t index,
                                const std::string& token);

// Returns when every command has ended. Nothing of the network is left then: no process, namespace
// or device. Takes SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process; call it in a thread that
// has started no other.
// say: gets a line about what an earlier network has left and this one has removed
// Throws: ConfigError, one line, when this process may not make a network; Error when a command
//         cannot be started
NetworkReport run_network(const NetworkOptions& options,
                          const std::function<void(const std::string&)>& say);

}  // namespace trireme::launch
