// The sockets of the job's store: where rank 0 listens, and how the others reach it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "trireme/base/file/descriptor.h"

namespace trireme::comm {

struct TcpAddress {
  std::string host;
  uint16_t port = 0;
};

// "tcp://HOST:PORT".
// Throws: ConfigError
TcpAddress parse_tcp_address(const std::string& text);

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
  bool is_loopback() const;       // of 127.0.0.0/8 or ::1
  std::string to_string() const;  // "10.0.0.1", without the port
  bool operator==(const Endpoint& other) const;
};

// What the host's name stands for; asks again for a moment where the name service fails.
// Throws: ConfigError when the name does not resolve
std::vector<Endpoint> resolve(const TcpAddress& address);

// Listens on those of `endpoints` that are this host's, and on no other of its addresses.
// Non-blocking. `address` is for errors.
// Throws: ConfigError when none is this host's or the port is in use
std::vector<Descriptor> listen_on(const std::vector<Endpoint>& endpoints,
                                  const TcpAddress& address);

// The first of `endpoints` that takes the connection, non-blocking. Does not retry. Returns a
// closed descriptor on failure, and puts the reason into `problem`.
Descriptor connect_to(const std::vector<Endpoint>& endpoints,
                      std::chrono::steady_clock::time_point deadline, std::string& problem);

// All of it before `deadline`: false when the peer is gone or late.
bool send_all(int fd, const void* data, size_t num_bytes,
              std::chrono::steady_clock::time_point deadline);
bool recv_all(int fd, void* data, size_t num_bytes, std::chrono::steady_clock::time_point deadline);

}  // namespace trireme::comm
