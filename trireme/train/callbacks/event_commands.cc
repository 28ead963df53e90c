#include "trireme/train/callbacks/event_commands.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"

extern char** environ;

namespace trireme::train {

std::unique_ptr<Callback> EventCommands::clone() const {
  auto copy = std::make_unique<EventCommands>();
  copy->config_ = config_;
  return copy;
}

bool EventCommands::is_on() const { return !commands().empty(); }

std::vector<std::pair<std::string, std::string>> EventCommands::commands() const {
  std::vector<std::pair<std::string, std::string>> commands;
  const auto add = [&](Event event, const std::string& command) {
    if (!command.empty())
      commands.emplace_back(concat("command.", name_of(kEvents, event)), command);
  };
  add(Event::kStart, config_.on_start);
  add(Event::kEvaluate, config_.on_evaluate);
  add(Event::kStep, config_.on_step);
  add(Event::kCheckpoint, config_.on_checkpoint);
  add(Event::kStop, config_.on_stop);
  return commands;
}

void EventCommands::start(RunView& run, Event event, const std::string& command,
                          const std::string& checkpoint) {
  if (run.world().rank() != 0) return;
  if (!command.empty()) {
    if (!queue_)
      queue_ = std::make_unique<CommandQueue>(std::chrono::seconds(config_.timeout_seconds));
    const std::string folder = std::filesystem::absolute(run.folder()).string();
    const std::string name = name_of(kEvents, event);
    queue_->add({.name = "command." + name,
                 .command = command,
                 .input = run.step() > 0 ? to_json(run.metrics()) + "\n" : "",
                 .variables = {concat("TRIREME_EVENT=", name), concat("TRIREME_STEP=", run.step()),
                               concat("TRIREME_FOLDER=", folder),
                               concat("TRIREME_CHECKPOINT=", checkpoint)}});
  }
  report(run);
}

void EventCommands::on_stop(RunView& run) {
  start(run, Event::kStop, config_.on_stop);
  if (!queue_) return;
  queue_->finish();
  report(run);
}

void EventCommands::report(RunView& run) {
  if (!queue_) return;
  for (const std::string& failure : queue_->take_failures()) run.tell(failure);
}

void require_own_commands(std::span<const NamedCallback> callbacks,
                          const std::filesystem::path& path,
                          std::span<const std::pair<std::string, std::string>> typed) {
  std::error_code ignored;
  if (!std::filesystem::exists(path.parent_path() / "checkpoints", ignored)) return;
  std::string found;
  for (const NamedCallback& named : callbacks) {
    const auto* const own = dynamic_cast<const EventCommands*>(&*named.callback);
    if (own == nullptr) continue;
    for (const auto& [key, command] : own->commands()) {
      const bool is_typed =
          std::ranges::any_of(typed, [&key](const auto& given) { return given.first == key; });
      if (is_typed) continue;
      found += concat(found.empty() ? "" : ", ", key, " = \"", shown(command, 300), "\"");
    }
  }
  bool is_allowed = false;  // by the last one, which counts
  for (const auto& [key, value] : typed) {
    if (key == "command.allow") is_allowed = value == "true";
  }
  TRIREME_CHECK(found.empty() || is_allowed, shown(path.string()),
                " is the config of a run and has commands, which anyone may "
                "have written: ",
                found,
                "; allow them with --command.allow=true, or set each to "
                "\"\"");
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook = std::chrono::milliseconds(10);

// Starts the shell in a process group of its own, with `input` as its stdin. Returns its id.
pid_t spawn(const CommandCall& call, int input) {
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!comm::is_rank_variable(text.substr(0, text.find('=')))) variables.push_back(*entry);
  }
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

CommandQueue::CommandQueue(std::chrono::milliseconds timeout, std::string limit)
    : timeout_(timeout), limit_(std::move(limit)), thread_([this] { work(); }) {}

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

// Without collecting it: its number stays its own.
bool CommandQueue::has_ended(pid_t child) const {
  siginfo_t ended{};
  return waitid(P_PID, child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child;
}

int CommandQueue::collect(pid_t child) {
  int status = 0;
  siginfo_t ended{};
  waitid(P_PID, child, &ended, WEXITED | WNOWAIT);
  guard_.remove(child);
  waitpid(child, &status, 0);
  return status;
}

// Returns how it failed; "" when it did not.
std::string CommandQueue::run(const CommandCall& call) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return concat("did not start: ", std::strerror(errno));
  Descriptor output(ends[0]);
  Descriptor input(ends[1]);
  fcntl(input.get(), F_SETFL, O_NONBLOCK);
  guard_.begin();
  pid_t child = -1;
  try {
    child = spawn(call, output.get());
  } catch (const Error& error) {
    return concat("did not start: ", error.what());
  }
  guard_.add(child);
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
    if (has_ended(child)) {
      const int status = collect(child);
      return status == 0 ? "" : describe(status);
    }
    bool is_ending = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [this] { return is_ending_; });
      is_ending = is_ending_;
    }
    if (!is_ending && Clock::now() < deadline) continue;
    kill(-child, SIGKILL);
    collect(child);
    return concat("was killed after ",
                  std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(), " s (",
                  limit_, ")");
  }
}

}  // namespace trireme::train
