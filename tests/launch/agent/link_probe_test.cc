#include "trireme/launch/agent/link_probe.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

void ask(LinkProbe& probe, int64_t number, std::vector<LinkedHost> hosts) {
  hosts.push_back({"me", probe.address(), 1});
  probe.answer({.links_asked = number, .linked = std::move(hosts)}, "me");
}

LinkProbe::Answer answer_of(LinkProbe& probe, int64_t number) {
  while (probe.poll().number < number) std::this_thread::sleep_for(1ms);
  return probe.poll();
}

// A port of this host whose queue of connections is full, so that no further one is answered.
class SilentPort {
 public:
  SilentPort() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    auto* const place = reinterpret_cast<sockaddr*>(&address_);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_.get(), place, length_), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_EQ(getsockname(listener_.get(), place, &length_), 0);
    for (int i = 0; i < 4; ++i) {
      queued_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      static_cast<void>(connect(queued_.back().get(), place, length_));
    }
  }
  int port() const { return ntohs(address_.sin_port); }

 private:
  Descriptor listener_;
  sockaddr_in address_{};
  socklen_t length_ = sizeof(address_);
  std::vector<Descriptor> queued_;
};

TEST(LinkProbe, NamesTheHostsThatItDoesNotReachAndWhy) {
  const LinkProbe other("127.0.0.1");
  LinkProbe probe("127.0.0.1", 300ms);
  const SilentPort silent;
  int closed_port = 0;
  { closed_port = LinkProbe("127.0.0.1").port(); }
  EXPECT_EQ(probe.poll().number, 0);
  ask(probe, 1,
      {{"other", other.address(), other.port()},
       {"silent", "127.0.0.1", silent.port()},
       {"closed", "127.0.0.1", closed_port},
       {"odd", "no address", 1}});
  std::map<std::string, std::string> reasons;
  for (const Unreached& each : answer_of(probe, 1).unreached) reasons[each.id] = each.reason;
  ASSERT_EQ(reasons.size(), 3u);
  EXPECT_EQ(reasons["silent"], "no answer within 0.3 s");
  EXPECT_NE(reasons["closed"].find("refused"), std::string::npos) << reasons["closed"];
  EXPECT_NE(reasons["odd"].find("resolve"), std::string::npos) << reasons["odd"];
}

TEST(LinkProbe, AnswersEachQuestionOnceAndTheNewestLast) {
  LinkProbe a("127.0.0.1");
  LinkProbe b("::1");
  std::vector<LinkedHost> hosts = {{"a", a.address(), a.port()}};
  if (b.port() != 0) hosts.push_back({"b", b.address(), b.port()});  // this host has IPv6
  for (int64_t number = 1; number <= 3; ++number) {
    ask(a, number, hosts);
    EXPECT_TRUE(answer_of(a, number).unreached.empty());
    ask(a, number, {{"nobody", "127.0.0.1", 1}});
    EXPECT_TRUE(a.poll().unreached.empty());
  }
  ask(a, 4, {});
  EXPECT_EQ(a.poll().number, 4);
}

TEST(LinkProbe, ManyHostsAndAQueueThatIsTakenOff) {
  LinkProbe probe("127.0.0.1");
  const std::vector<LinkedHost> hosts(3000, {"itself", probe.address(), probe.port()});
  ask(probe, 1, hosts);
  EXPECT_TRUE(answer_of(probe, 1).unreached.empty());
}

TEST(LinkProbe, OfAnAddressElsewhereListensOnNone) {
  const LinkProbe probe("192.0.2.7");
  EXPECT_EQ(probe.port(), 0);
}

}  // namespace
}  // namespace trireme::launch
