#include "trireme/comm/rendezvous/meeting.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

MeetingOptions at_free_port() {
  Port port;
  const std::string address = concat("127.0.0.1:", port.number());
  port.release();
  return {.address = address, .job = "galley", .timeout = 5s};
}

TEST(Meeting, LetsAnyNumberOfMembersShareKeys) {
  const MeetingOptions options = at_free_port();
  Meeting server = Meeting::serve(options);
  Meeting first = Meeting::join(options);
  Meeting second = Meeting::join(options);
  EXPECT_EQ(first.add("members", 1), 1);
  EXPECT_EQ(second.add("members", 1), 2);
  first.set("a", "1");
  second.set("b", std::string("\0x", 2));
  EXPECT_EQ(server.get({"b", "a"}), (std::vector<std::string>{std::string("\0x", 2), "1"}));
  EXPECT_EQ(server.get({}), std::vector<std::string>());
  EXPECT_EQ(second.own_address(), "127.0.0.1");
}

TEST(Meeting, WaitsForAKeyNoLongerThanAsked) {
  const MeetingOptions options = at_free_port();
  Meeting server = Meeting::serve(options);
  EXPECT_FALSE(server.wait_for("never", 1ms));
  server.set("there", "yes");
  EXPECT_EQ(server.wait_for("there", 10s), "yes");
}

TEST(Meeting, KnowsWhetherItCanServe) {
  MeetingOptions options = at_free_port();
  EXPECT_TRUE(Meeting::can_serve(options));
  const Meeting server = Meeting::serve(options);
  EXPECT_FALSE(Meeting::can_serve(options));  // somebody listens there
  options.address = "192.0.2.1:4711";         // of nobody (RFC 5737)
  EXPECT_FALSE(Meeting::can_serve(options));
}

TEST(Meeting, RefusesMembersOfAnotherJob) {
  MeetingOptions options = at_free_port();
  const Meeting server = Meeting::serve(options);
  options.job = "barge";
  EXPECT_THROW(Meeting::join(options), ConfigError);
}

TEST(Meeting, NoticesThatTheServerIsGone) {
  const MeetingOptions options = at_free_port();
  auto server = std::make_unique<Meeting>(Meeting::serve(options));
  Meeting member = Meeting::join(options);
  server.reset();
  EXPECT_THROW(member.set("a", "1"), CommError);
}

}  // namespace
}  // namespace trireme::comm
