#include "trireme/launch/inject/command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/descriptor.h"
#include "trireme/base/shown.h"

namespace trireme::launch::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 64 << 10;

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

std::string find_program(const std::string& name) {
  for (const char* const folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  throw Error(concat("this machine has no program ", name));
}

pid_t spawn(const std::vector<std::string>& arguments, int output) {
  const std::string program = find_program(arguments.at(0));
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  // Messages in English, whatever the user's language is.
  std::array<char*, 2> environment{const_cast<char*>("LC_ALL=C"), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, program.c_str(), &actions, &attributes, words.data(),
                                  environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(concat("cannot start ", program, ": ", std::strerror(error)));
  return child;
}

// Reads until the other end is closed. Returns whether that happened in time.
bool read_all(int from, Clock::time_point deadline, std::string& output) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd readable{.fd = from, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const auto num_bytes = ::read(from, buffer.data(), buffer.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return true;
    const auto room = kMostOutput - output.size();
    output.append(buffer.data(), std::min(room, static_cast<size_t>(num_bytes)));
  }
}

// How the child has ended; nothing when someone else in this process has reaped it.
std::optional<int> reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return status;
}

}  // namespace

std::string run_command(const std::vector<std::string>& arguments,
                        std::chrono::milliseconds limit) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(concat("cannot make a pipe: ", std::strerror(errno)));
  }
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = spawn(arguments, to.get());
  to.close();
  std::string output;
  const bool has_ended = read_all(from.get(), Clock::now() + limit, output);
  if (!has_ended) ::kill(child, SIGKILL);
  const std::optional<int> status = reap(child);
  while (output.ends_with('\n')) output.pop_back();
  if (!has_ended)
    throw Error(concat(joined(arguments), " takes longer than ", limit.count(), " ms"));
  if (status && *status != 0) {
    throw Error(
        concat(joined(arguments), ": ",
               output.empty() ? "failed" : shown(output.substr(0, output.find('\n')), 200)));
  }
  return output;
}

}  // namespace trireme::launch::inline internal
