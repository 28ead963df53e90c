#include "trireme/comm/net/tcp_socket.h"

#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TcpAddress free_address(const std::string& host = "127.0.0.1") {
  Port port;
  const TcpAddress address{host, port.number()};
  return address;
}

// Why nobody answers at `address`; empty when somebody does.
std::string problem_at(const TcpAddress& address) {
  std::string problem;
  const Descriptor socket = connect_to(resolve(address), in_seconds(20), problem);
  return socket.is_open() ? "" : problem;
}

TEST(TcpSocket, ReadsAddresses) {
  const TcpAddress address = parse_tcp_address("tcp://node1:29500");
  EXPECT_EQ(address.host, "node1");
  EXPECT_EQ(address.port, 29500);
  EXPECT_EQ(parse_tcp_address("tcp://fe80::1:80").host, "fe80::1");
  EXPECT_EQ(parse_tcp_address("tcp://[::1]:80").host, "::1");
  for (const std::string text : {"tcp://node1", "tcp://:80", "tcp://node1:", "tcp://node1:0",
                                 "tcp://node1:65536", "tcp://node1:80x", "udp://node1:80", ""}) {
    EXPECT_ERROR(ConfigError, parse_tcp_address(text), "expected tcp://HOST:PORT with a port from");
  }
}

TEST(TcpSocket, KnowsWhichAddressesStayOnThisHost) {
  for (const std::string host : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(resolve({host, 80}).front().is_loopback()) << host;
  }
  for (const std::string host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "::2"}) {
    EXPECT_FALSE(resolve({host, 80}).front().is_loopback()) << host;
  }
  EXPECT_EQ(resolve({"10.0.0.1", 80}).front().to_string(), "10.0.0.1");
}

TEST(TcpSocket, ListensOnTheAddressAskedForAndOnNoOther) {
  const TcpAddress address = free_address();
  const auto listeners = listen_on(resolve(address), address);
  EXPECT_EQ(problem_at(address), "");
  // All of 127.0.0.0/8 is this host, and would be let in by a socket that listens everywhere.
  EXPECT_EQ(problem_at({"127.0.0.2", address.port}), "Connection refused");
  EXPECT_EQ(problem_at({"::1", address.port}), "Connection refused");
  const TcpAddress other{"127.0.0.2", address.port};
  const auto others = listen_on(resolve(other), other);
  EXPECT_EQ(problem_at(other), "") << "two jobs, each on an address of its own";
}

TEST(TcpSocket, ListensOnEveryAddressOfAName) {
  const TcpAddress address = free_address("localhost");
  const std::vector<Endpoint> endpoints = resolve(address);
  const auto listeners = listen_on(endpoints, address);
  EXPECT_FALSE(listeners.empty());
  EXPECT_EQ(problem_at(address), "");
  for (const Endpoint& endpoint : endpoints) EXPECT_TRUE(endpoint.is_loopback());
}

TEST(TcpSocket, ListensOnceOnAnAddressThatANameHasTwice) {
  const TcpAddress address = free_address();
  std::vector<Endpoint> endpoints = resolve(address);
  endpoints.push_back(endpoints.front());
  EXPECT_EQ(listen_on(endpoints, address).size(), 1u);
}

TEST(TcpSocket, WhereItCannotListenIsAConfigErrorOfOneLine) {
  Port port;
  port.listen();
  const TcpAddress taken = port.address();
  EXPECT_ERROR(
      ConfigError, listen_on(resolve(taken), taken),
      concat("port ", port.number(), " of this host is in use; set MASTER_PORT to a free"));
  const TcpAddress elsewhere{"198.51.100.7", port.number()};  // of documentation, nobody's
  EXPECT_ERROR(
      ConfigError, listen_on(resolve(elsewhere), elsewhere),
      "\"198.51.100.7\" is not an address of this host, where rank 0 serves the store; set "
      "MASTER_ADDR to one on all ranks");
}

TEST(TcpSocket, MovesBytesOfAnySizeAndNoticesTheEnd) {
  const TcpAddress address = free_address();
  const auto listeners = listen_on(resolve(address), address);
  std::string sent(3 << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761u >> 24);
  std::thread sender([&] {
    const Descriptor socket = stranger(address);
    EXPECT_TRUE(send_all(socket.get(), sent.data(), sent.size(), in_seconds(60)));
  });
  int fd;
  while ((fd = accept4(listeners.front().get(), nullptr, nullptr, SOCK_NONBLOCK)) < 0) {
    std::this_thread::yield();
  }
  const Descriptor socket(fd);
  std::string received(sent.size(), '\0');
  EXPECT_TRUE(recv_all(fd, received.data(), received.size(), in_seconds(60)));
  EXPECT_EQ(received, sent);
  char more;
  EXPECT_FALSE(recv_all(fd, &more, 1, in_seconds(60)));
  sender.join();
}

TEST(TcpSocket, WaitsForAPeerNoLongerThanItMay) {
  Port port;
  port.listen();
  const Descriptor socket = stranger(port.address());
  char byte;
  EXPECT_FALSE(recv_all(socket.get(), &byte, 1, in_seconds(0)));
  const std::string megabytes(64 << 20, 'x');
  EXPECT_FALSE(send_all(socket.get(), megabytes.data(), megabytes.size(), in_seconds(0)));
}

}  // namespace
}  // namespace trireme::comm
