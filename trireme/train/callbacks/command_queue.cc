#include "trireme/train/callbacks/command_queue.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/descriptor.h"

extern char** environ;

namespace trireme::train::inline internal {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook = std::chrono::milliseconds(10);

// Starts the shell in a process group of its own, with `input` as its stdin. Returns its id.
pid_t spawn(const CommandCall& call, int input) {
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
  for (const std::string& variable : call.variables) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  variables.push_back(nullptr);
  const char* const arguments[] = {"/bin/sh", "-c", call.command.c_str(), nullptr};

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  // A command gets the usual signals, whatever this thread and this program do about them.
  sigset_t usual, none;
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int error = posix_spawn(&child, arguments[0], &actions, &attributes,
                                const_cast<char* const*>(arguments), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw Error(std::strerror(error));
  return child;
}

std::string describe(int status) {
  if (WIFEXITED(status)) return concat("ended with code ", WEXITSTATUS(status));
  return concat("was ended by signal ", WTERMSIG(status));
}

}  // namespace

CommandQueue::CommandQueue(std::chrono::milliseconds timeout)
    : timeout_(timeout), thread_([this] { work(); }) {}

CommandQueue::~CommandQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void CommandQueue::add(CommandCall call) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    failures_.push_back(
        concat(call.name, " was left out: ", kMaxWaiting, " commands wait already"));
    return;
  }
  waiting_.push_back(std::move(call));
  changed_.notify_all();
}

void CommandQueue::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !is_running_; });
}

std::vector<std::string> CommandQueue::take_failures() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failures_, {});
}

void CommandQueue::work() {
  // Writing to a command that does not read is an error here, not a signal.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    const CommandCall call = std::move(waiting_.front());
    waiting_.pop_front();
    is_running_ = true;
    lock.unlock();
    const std::string failure = run(call);
    lock.lock();
    is_running_ = false;
    if (!failure.empty()) failures_.push_back(concat(call.name, " ", failure));
    changed_.notify_all();
  }
}

// Returns how it failed; "" when it did not.
std::string CommandQueue::run(const CommandCall& call) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return concat("did not start: ", std::strerror(errno));
  Descriptor output(ends[0]);
  Descriptor input(ends[1]);
  fcntl(input.get(), F_SETFL, O_NONBLOCK);
  pid_t child = -1;
  try {
    child = spawn(call, output.get());
  } catch (const Error& error) {
    return concat("did not start: ", error.what());
  }
  output = Descriptor();
  const auto deadline = Clock::now() + timeout_;
  std::string_view rest = call.input;
  while (true) {
    if (rest.empty()) input = Descriptor();
    if (!rest.empty()) {
      const ssize_t written = write(input.get(), rest.data(), rest.size());
      if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
      if (written < 0 && errno != EAGAIN) rest = {};  // it does not read
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status == 0 ? "" : describe(status);
    bool is_ending = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [this] { return is_ending_; });
      is_ending = is_ending_;
    }
    if (!is_ending && Clock::now() < deadline) continue;
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    return concat("was killed after ",
                  std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(),
                  " s (command.timeout_seconds)");
  }
}

}  // namespace trireme::train::inline internal
