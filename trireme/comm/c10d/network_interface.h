// Finds the network interface that a connection should use.
#pragma once

#include <string>

namespace trireme::comm {

struct NetworkInterface {
  std::string name;     // "eth0"
  std::string address;  // numeric, of this host: "10.0.0.1"
  bool is_loopback = false;
};

// "eth0 (10.0.0.1)"
std::string to_string(const NetworkInterface& interface);

// The interface through which packets to `host` (a name or an address) leave. Sends nothing.
// Throws: ConfigError when `host` does not resolve or has no route
NetworkInterface find_interface_to(const std::string& host);

// 127.0.0.1, or ::1 where there is no IPv4.
// Throws: ConfigError when there is neither
NetworkInterface find_loopback();

// The interface with that name, with its first IPv4 address, or else its first IPv6 address.
// Throws: ConfigError with the names that exist
NetworkInterface find_interface(const std::string& name);

}  // namespace trireme::comm
