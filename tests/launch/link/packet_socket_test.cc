#include "trireme/launch/link/message.h"

#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

TEST(PacketSocket, KeepsPacketsApart) {
  const auto [a, b] = PacketSocket::make_pair();
  EXPECT_TRUE(a.send("one"));
  EXPECT_TRUE(a.send(std::string(kMaxPacketBytes, 'x')));
  std::string packet;
  EXPECT_EQ(b.receive(packet), Received::kPacket);
  EXPECT_EQ(packet, "one");
  EXPECT_EQ(b.receive(packet), Received::kPacket);
  EXPECT_EQ(packet.size(), kMaxPacketBytes);
  EXPECT_EQ(b.receive(packet), Received::kNothing);
}

TEST(PacketSocket, DropsAPacketThatIsTooLong) {
  const auto [a, b] = PacketSocket::make_pair();
  EXPECT_TRUE(a.send(std::string(kMaxPacketBytes + 1, 'x')));
  EXPECT_TRUE(a.send("next"));
  std::string packet;
  EXPECT_EQ(b.receive(packet), Received::kTooLong);
  EXPECT_EQ(b.receive(packet), Received::kPacket);
  EXPECT_EQ(packet, "next");
}

TEST(PacketSocket, NeverWaitsWhenThePeerDoesNotRead) {
  const auto [a, b] = PacketSocket::make_pair();
  int sent = 0;
  while (a.send("step") && sent < 1'000'000) ++sent;
  EXPECT_GT(sent, 10);
  EXPECT_LT(sent, 1'000'000);
  std::string packet;
  std::thread reader([&, &end = b] { end.receive(packet, std::chrono::seconds(60)); });
  EXPECT_TRUE(a.send("left", std::chrono::seconds(60)));
  reader.join();
}

TEST(PacketSocket, SeesThatThePeerIsGone) {
  auto [a, b] = PacketSocket::make_pair();
  a.send("last words");
  a.close();
  std::string packet;
  EXPECT_EQ(b.receive(packet), Received::kPacket);
  EXPECT_EQ(b.receive(packet), Received::kClosed);
  EXPECT_FALSE(b.send("nobody hears"));
}

TEST(PacketSocket, ShutDownEndsAWait) {
  const auto [a, b] = PacketSocket::make_pair();
  Received received = Received::kNothing;
  std::thread reader([&, &end = b] {
    std::string packet;
    received = end.receive(packet, std::chrono::hours(1));
  });
  b.shut_down();
  reader.join();
  EXPECT_EQ(received, Received::kClosed);
}

TEST(PacketSocket, AdoptsOnlyASocketOfPackets) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const Descriptor other(ends[1]);
  {
    const PacketSocket adopted = PacketSocket::adopt(ends[0], "TRIREME_AGENT_FD");
    EXPECT_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
  }
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Descriptor first(ends[0]);
  const Descriptor second(ends[1]);
  for (const int fd : {-1, 987'654, first.get()}) {
    EXPECT_THROW(PacketSocket::adopt(fd, "TRIREME_AGENT_FD"), ConfigError) << fd;
  }
  EXPECT_EQ(fcntl(first.get(), F_GETFD), 0);
}

}  // namespace
}  // namespace trireme::launch
