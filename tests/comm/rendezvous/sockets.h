// Ports and strangers for the tests of the job's store.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {

inline std::chrono::steady_clock::time_point in_seconds(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

// A port of 127.0.0.1 that nobody listens on, held until the end of the scope or until listen().
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_.get(), generic, sizeof(address)) != 0 ||
        getsockname(socket_.get(), generic, &length) != 0) {
      throw Error("no free port");
    }
    number_ = ntohs(address.sin_port);
  }
  void listen() { ::listen(socket_.get(), 8); }
  void release() { socket_ = Descriptor(); }
  uint16_t number() const { return number_; }
  int fd() const { return socket_.get(); }
  TcpAddress address() const { return {"127.0.0.1", number_}; }

 private:
  Descriptor socket_;
  uint16_t number_ = 0;
};

// A connection of someone who is no rank.
inline Descriptor stranger(const TcpAddress& address) {
  std::string problem;
  Descriptor socket = connect_to(resolve(address), in_seconds(20), problem);
  if (!socket.is_open()) throw Error("no connection: " + problem);
  return socket;
}

// Everything that comes until the peer closes.
inline std::string read_to_end(const Descriptor& socket) {
  std::string text;
  char byte;
  while (recv_all(socket.get(), &byte, 1, in_seconds(20))) text += byte;
  return text;
}

}  // namespace trireme::comm
