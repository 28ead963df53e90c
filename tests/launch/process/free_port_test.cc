#include "trireme/launch/process/rank_environment.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

TEST(FreePort, CanBeListenedOn) {
  const int port = free_port();
  ASSERT_GT(port, 0);
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(socket.get(), 1), 0);
}

}  // namespace
}  // namespace trireme::launch
