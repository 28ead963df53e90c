#include "trireme/base/machine/group_guard.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kLink = 3;  // in the shell
constexpr int kEndPatienceMs = 1000;

// The part in braces is not a child of this process, so nobody mistakes it for a worker. It reads
// until the link ends, which no signal to a whole job prevents, or until a read of it fails because
// nothing has come for longer than the lease.
constexpr const char* kScript = R"(
trap '' HUP INT QUIT PIPE TERM USR1 USR2
{ groups=' '
  while read -r what group; do
    case $what in
      add) case $groups in *" $group "*) ;; *) groups="$groups$group " ;; esac ;;
      remove) case $groups in *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;; esac ;;
    esac
  done
  for group in $groups; do kill -9 "-$group"; done
} <&3 &)";

}  // namespace

GroupGuard::~GroupGuard() {
  if (!link_.is_open()) return;
  ::shutdown(link_.get(), SHUT_WR);
  pollfd end{link_.get(), POLLIN, 0};
  ::poll(&end, 1, kEndPatienceMs);
}

void GroupGuard::renew(std::chrono::milliseconds lease) {
  const std::lock_guard lock(mutex_);
  lease_ = lease;
  // A shell whose lease has just lapsed may end without having read the last add.
  if (link_.is_open() && !tell("renew", 0) && !groups_.empty()) start();
}

int GroupGuard::begin() {
  const std::lock_guard lock(mutex_);
  if (!link_.is_open() || !tell("renew", 0)) start();
  return link_.get();
}

void GroupGuard::add_this_group(int link) {
  constexpr char kAdd[] = {'a', 'd', 'd', ' '};
  char line[32];
  char* begin = std::end(line);
  *--begin = '\n';
  for (pid_t rest = ::getpid(); rest > 0; rest /= 10) {
    *--begin = static_cast<char>('0' + rest % 10);
  }
  begin = std::copy_backward(std::begin(kAdd), std::end(kAdd), begin);
  ::send(link, begin, std::end(line) - begin, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void GroupGuard::add(pid_t group) {
  const std::lock_guard lock(mutex_);
  groups_.insert(group);
  if (!link_.is_open() || !tell("add", group)) start();
}

void GroupGuard::remove(pid_t group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
  if (link_.is_open() && !tell("remove", group)) start();
}

bool GroupGuard::tell(const char* what, pid_t group) {
  const std::string line = concat(what, " ", group, "\n");
  return ::send(link_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(line);
}

void GroupGuard::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    link_.close();
    return;
  }
  Descriptor link(ends[0]);
  const Descriptor other(ends[1]);
  // The link keeps its number, which may be with a child between begin() and exec.
  if (!link_.is_open()) {
    link_ = std::move(link);
  } else if (::dup3(link.get(), link_.get(), O_CLOEXEC) < 0) {
    link_.close();
    return;
  }
  if (lease_.count() > 0) {
    const timeval lease{.tv_sec = lease_.count() / 1000,
                        .tv_usec = static_cast<suseconds_t>(lease_.count() % 1000 * 1000)};
    ::setsockopt(other.get(), SOL_SOCKET, SO_RCVTIMEO, &lease, sizeof(lease));
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, other.get(), kLink);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  // It holds no pipe, file or folder open that others wait for.
  posix_spawn_file_actions_addclosefrom_np(&actions, kLink + 1);
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const std::string owner = std::to_string(::getpid());  // for people who look at processes
  const char* const arguments[] = {"sh", "-c", kScript, "trireme-guard", owner.c_str(), nullptr};
  const char* const variables[] = {"PATH=/usr/bin:/bin", nullptr};
  pid_t shell = -1;
  const int error =
      posix_spawn(&shell, "/bin/sh", &actions, &attributes, const_cast<char* const*>(arguments),
                  const_cast<char* const*>(variables));
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    link_.close();
    return;
  }
  while (::waitpid(shell, nullptr, 0) < 0 && errno == EINTR) {
  }
  for (const pid_t group : groups_) tell("add", group);
}

}  // namespace trireme
