// The sockets of the job's store: rank 0 listens, the other ranks connect, and the server counts
// the connections that it refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "trireme/base/file/file.h"

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

// The addresses of the host's name. Retries for a moment when the name service fails.
// Throws: ConfigError when the name does not resolve
std::vector<Endpoint> resolve(const TcpAddress& address);

// Listens on those of `endpoints` that belong to this host, and on no other address. Non-blocking.
// `address` is for errors.
// Throws: ConfigError when none belongs to this host or the port is in use
std::vector<Descriptor> listen_on(const std::vector<Endpoint>& endpoints,
                                  const TcpAddress& address);

// Connects to the first of `endpoints` that accepts, non-blocking. Does not retry. On failure
// returns a closed descriptor and writes the reason to `problem`.
Descriptor connect_to(const std::vector<Endpoint>& endpoints,
                      std::chrono::steady_clock::time_point deadline, std::string& problem);

// Sends or receives all bytes before `deadline`. False when the peer is gone or late.
bool send_all(int fd, const void* data, size_t num_bytes,
              std::chrono::steady_clock::time_point deadline);
bool recv_all(int fd, void* data, size_t num_bytes, std::chrono::steady_clock::time_point deadline);

// Counts, within bounds, which connections a server refused, from where and why.
// Thread safe.
class Refusals {
 public:
  using Listener = std::function<void(const std::string& line)>;

  // `listener` gets the 1st, 10th, 100th, ... refusal of each address and reason.
  explicit Refusals(Listener listener = nullptr) : listener_(std::move(listener)) {}
  void add(const std::string& address, const std::string& reason);
  // "3 connections were refused: 2 from 10.0.0.7 (wrong token), ..."; "" when there were none.
  std::string to_string() const;

 private:
  const Listener listener_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, uint64_t> counts_;
};

}  // namespace trireme::comm
