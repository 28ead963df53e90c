#include "trireme/launch/network/host_space.h"

#include <fstream>
#include <optional>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {
namespace {

uint64_t network_of_thread() {
  struct stat own {};
  EXPECT_EQ(::stat("/proc/thread-self/ns/net", &own), 0);
  return own.st_ino;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

TEST(HostSpace, HasANetworkANameAndMemoryOfItsOwn) {
  const std::string before = host_name();
  const std::string file = concat("/dev/shm/trireme-", ::getpid(), "-space");
  HostSpace paris("paris"), tokyo("tokyo");
  uint64_t first = 0, second = 0;
  paris.run([&] {
    first = network_of_thread();
    EXPECT_EQ(host_name(), "paris");
    std::ofstream(file) << "here";
    EXPECT_EQ(::access(file.c_str(), F_OK), 0);
  });
  tokyo.run([&] {
    second = network_of_thread();
    EXPECT_EQ(host_name(), "tokyo");
    EXPECT_NE(::access(file.c_str(), F_OK), 0);
  });
  EXPECT_NE(first, second);
  EXPECT_NE(first, network_of_thread());
  EXPECT_NE(second, network_of_thread());
  EXPECT_EQ(host_name(), before);
  EXPECT_NE(::access(file.c_str(), F_OK), 0);
}

TEST(HostSpace, ThrowsWhatItsWorkThrowsAndGoesOn) {
  HostSpace space("paris");
  EXPECT_THROW(space.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  bool has_run = false;
  space.run([&] { has_run = true; });
  EXPECT_TRUE(has_run);
}

std::optional<Child> sleeper(const std::string& mark) {
  std::optional<Child> child;
  child.emplace(ChildOptions{.command = {"sleep", "1000"},
                             .environment = {{"PATH", "/usr/bin:/bin"}, {kNetworkVariable, mark}}},
                "sleep");
  // It has its environment once it is the program.
  std::string name;
  while (name != "sleep") {
    std::ifstream file(concat("/proc/", child->pid(), "/comm"));
    std::getline(file, name);
  }
  return child;
}

bool has_ended(Child& child) { return child.reap().has_value(); }

TEST(NetworkMark, FindsTheProcessesOfANetwork) {
  auto mine = sleeper(network_mark()), other = sleeper("0-1-2"), none = sleeper("");
  EXPECT_EQ(kill_marked(network_mark()), 1);
  EXPECT_TRUE(has_ended(*mine));
  EXPECT_FALSE(has_ended(*other));
  EXPECT_FALSE(has_ended(*none));
  EXPECT_EQ(kill_marked(network_mark()), 0);
}

TEST(NetworkMark, LeftOverIsWhatHasLostItsNetwork) {
  const std::string mark = network_mark();
  const std::string space = mark.substr(0, mark.find('-'));
  auto live = sleeper(mark);
  // Of a process that had this one's number before, and of another container.
  auto earlier = sleeper(concat(space, "-", ::getpid(), "-1")), elsewhere = sleeper("1-2-3");
  auto strange = sleeper("x"), stranger = sleeper(space + "-"), longer = sleeper(mark + "-1");
  EXPECT_EQ(kill_left_over(), 1);
  EXPECT_TRUE(has_ended(*earlier));
  for (auto* const child : {&live, &elsewhere, &strange, &stranger, &longer}) {
    EXPECT_FALSE(has_ended(**child));
  }
}

}  // namespace
}  // namespace trireme::launch
