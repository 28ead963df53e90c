#include "tests/comm/two_hosts.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr const char* kFolder = "/run/netns";

void run_command(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw Error("failed: " + command);
}

void check_call(int result, const char* what) {
  if (result != 0) throw Error(concat(what, ": ", std::strerror(errno)));
}

// trireme-PID-HOST of processes that are no more.
void remove_orphans() {
  if (!std::filesystem::is_directory(kFolder)) return;
  std::vector<std::string> orphans;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("trireme-")) continue;
    if (kill(std::atoi(name.c_str() + 8), 0) != 0 && errno == ESRCH) orphans.push_back(name);
  }
  for (const std::string& name : orphans) run_command("ip netns delete " + name);
}

}  // namespace

TwoHosts::TwoHosts(Memory memory)
    : memory_(memory), prefix_("trireme-" + std::to_string(getpid())) {
  remove_orphans();
  for (const int host : {0, 1}) run_command("ip netns add " + space(host));
  run_command(concat("ip -n ", space(0), " link add ", kInterface, " type veth peer name ",
                     kInterface, " netns ", space(1)));
  for (const int host : {0, 1}) {
    const std::string ip = "ip -n " + space(host) + " ";
    run_command(ip + "link set lo up");
    run_command(ip + "address add " + address(host) + "/24 dev " + kInterface);
    run_command(ip + "link set " + kInterface + " up");
  }
}

TwoHosts::~TwoHosts() {
  for (const int host : {0, 1}) {
    static_cast<void>(!std::system(("ip netns delete " + space(host)).c_str()));
  }
}

void TwoHosts::enter(int host) const {
  const int fd = open((std::string(kFolder) + "/" + space(host)).c_str(), O_RDONLY | O_CLOEXEC);
  check_call(fd < 0, "open namespace");
  check_call(setns(fd, CLONE_NEWNET), "setns");
  close(fd);
  if (memory_ == Memory::kShared) return;
  check_call(unshare(CLONE_NEWNS), "unshare");
  check_call(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount private");
  check_call(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=256m"), "mount /dev/shm");
}

std::vector<harness::ExitStatus> TwoHosts::run(const std::vector<int>& ranks_of,
                                               const std::function<void(int)>& function) const {
  // A process a host, so that its ranks share the mounts it makes.
  return harness::fork_processes(2, [&](int host) {
    enter(host);
    const auto statuses = harness::fork_processes(
        ranks_of[host], [&](int local) { function(host * ranks_of[0] + local); });
    for (const harness::ExitStatus status : statuses) {
      if (status != 0 && status != -SIGKILL) throw Error(concat("a rank ended with ", status));
    }
  });
}

}  // namespace trireme::comm
