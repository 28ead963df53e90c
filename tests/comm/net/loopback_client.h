// A client's socket, for tests of servers.
#pragma once

#include <chrono>
#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "trireme/base/file/file.h"

namespace trireme::comm {

// Connected to the server at `port` of the loopback. A recv() waits up to `patience`.
inline Descriptor connect_to_loopback(uint16_t port, std::chrono::seconds patience) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket;
}

}  // namespace trireme::comm
