#include "trireme/launch/link/link_ends.h"

#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

void write_raw(int fd, const std::string& packet) {
  ASSERT_EQ(write(fd, packet.data(), packet.size()), static_cast<ssize_t>(packet.size()));
}

TEST(WorkerLink, ReceivesWhatIsThereAndNeverWaits) {
  WorkerLink link;
  EXPECT_EQ(link.receive(), std::nullopt);
  write_raw(link.child_descriptor(), R"({"message":"step","epoch":1,"step":50})");
  EXPECT_EQ(link.receive(), ToAgent(StepDone{1, 50}));
  EXPECT_EQ(link.receive(), std::nullopt);
  EXPECT_FALSE(link.is_closed());
}

TEST(WorkerLink, BothEndsAreClosedByExec) {
  const WorkerLink link;
  EXPECT_EQ(fcntl(link.descriptor(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(link.child_descriptor(), F_GETFD), FD_CLOEXEC);
}

TEST(WorkerLink, SeesThatTheWorkerHasEnded) {
  WorkerLink link;
  write_raw(link.child_descriptor(), R"({"message":"spare","epoch":2})");
  link.close_child();
  EXPECT_EQ(link.child_descriptor(), -1);
  EXPECT_EQ(link.receive(), ToAgent(Spare{2}));
  EXPECT_FALSE(link.is_closed());
  EXPECT_EQ(link.receive(), std::nullopt);
  EXPECT_TRUE(link.is_closed());
  EXPECT_FALSE(link.send(Leave{2, "nobody is there"}));
}

TEST(WorkerLink, GoesOnAfterAPacketThatIsNoMessage) {
  WorkerLink link;
  write_raw(link.child_descriptor(), "{");
  write_raw(link.child_descriptor(), std::string(kMaxPacketBytes + 1, 'x'));
  write_raw(link.child_descriptor(), R"({"message":"spare","epoch":2})");
  EXPECT_THROW(link.receive(), ConfigError);
  EXPECT_THROW(link.receive(), ConfigError);
  EXPECT_EQ(link.receive(), ToAgent(Spare{2}));
}

}  // namespace
}  // namespace trireme::launch
