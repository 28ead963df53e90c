#include "trireme/launch/network/host_space.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/launch/network/tun_device.h"

namespace trireme::launch {
namespace {

void check_made(int result, const std::string& host, const char* what) {
  TRIREME_CHECK(result == 0, "cannot make the host ", host, ": ", what, ": ", std::strerror(errno),
                "; expected root, with CAP_SYS_ADMIN and CAP_NET_ADMIN in a container");
}

// Moves the calling thread.
void enter_new_namespaces(const std::string& name) {
  check_made(::unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS), name, "namespaces");
  // What is mounted from here on stays here.
  check_made(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), name, "mounts");
  check_made(::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), name,
             "/dev/shm");
  check_made(::sethostname(name.data(), name.size()), name, "host name");
  raise_loopback();
}

// Process numbers mean something within one namespace of them, such as a container's.
uint64_t process_namespace() {
  struct stat own {};
  return ::stat("/proc/self/ns/pid", &own) == 0 ? own.st_ino : 0;
}

struct Owner {
  uint64_t space = 0;
  int64_t process_id = 0;
  uint64_t start = 0;
};

// "4026531836-123-456789".
std::optional<Owner> owner_of(std::string_view mark) {
  Owner owner;
  const char* at = mark.data();
  const char* const end = at + mark.size();
  const auto read = [&](auto& number) {
    const auto [last, error] = std::from_chars(at, end, number);
    const bool is_number = error == std::errc() && (last == end || *last == '-');
    at = last == end ? end : last + 1;
    return is_number;
  };
  if (!read(owner.space) || !read(owner.process_id) || !read(owner.start)) return std::nullopt;
  return owner;
}

bool is_alive(const Owner& owner) {
  const auto stat = process_stat(owner.process_id);
  return stat && stat->start == owner.start && stat->state != 'Z' && stat->state != 'X';
}

// The value of kNetworkVariable of a process; "" when it has none or may not be seen.
std::string mark_of(int64_t process_id) {
  std::ifstream file(concat("/proc/", process_id, "/environ"), std::ios::binary);
  const std::string prefix = concat(kNetworkVariable, "=");
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable.starts_with(prefix)) return variable.substr(prefix.size());
  }
  return "";
}

std::vector<int64_t> all_processes() {
  std::vector<int64_t> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (fault == std::errc() && end == name.data() + name.size()) processes.push_back(number);
  }
  return processes;
}

// Kills all processes whose mark is meant, again and again, since they may start others meanwhile.
int kill_where(const std::function<bool(const std::string& mark)>& is_meant) {
  constexpr int kMostRounds = 1000;  // of a millisecond: one that waits for a device dies later
  int num_killed = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    int num_found = 0;
    for (const int64_t process : all_processes()) {
      if (process == ::getpid()) continue;
      const std::string mark = mark_of(process);  // a zombie has none
      if (mark.empty() || !is_meant(mark)) continue;
      ++num_found;
      if (::kill(static_cast<pid_t>(process), SIGKILL) == 0 && round == 0) ++num_killed;
    }
    if (num_found == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return num_killed;
}

}  // namespace

HostSpace::HostSpace(const std::string& name) {
  thread_ = std::thread([this] { serve(); });
  try {
    run([&name] { enter_new_namespaces(name); });
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
    throw;
  }
}

HostSpace::~HostSpace() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostSpace::run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  work_ = std::move(work);
  error_ = nullptr;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !work_; });
  if (error_) std::rethrow_exception(error_);
}

void HostSpace::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return work_ || has_ended_; });
    if (has_ended_) return;
    try {
      work_();
    } catch (...) {
      error_ = std::current_exception();
    }
    work_ = nullptr;
    changed_.notify_all();
  }
}

std::string network_mark() {
  const auto stat = process_stat(::getpid());
  return concat(process_namespace(), "-", ::getpid(), "-", stat ? stat->start : 0);
}

int kill_marked(const std::string& mark) {
  return kill_where([&](const std::string& found) { return found == mark; });
}

int kill_left_over() {
  return kill_where([space = process_namespace()](const std::string& mark) {
    const std::optional<Owner> owner = owner_of(mark);
    return owner && owner->space == space && !is_alive(*owner);
  });
}

}  // namespace trireme::launch
