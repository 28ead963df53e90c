// Runs a command of the user's at each event, which is how a run reaches a tracker or a pager. The
// commands run one after the other beside the program.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "trireme/base/key.h"
#include "trireme/base/machine/group_guard.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

// Shell commands that run one after the other beside the program.

struct CommandCall {
  std::string name;                      // in messages
  std::string command;                   // for /bin/sh -c
  std::string input{};                   // on its stdin
  std::vector<std::string> variables{};  // "NAME=value", beside this process's environment
};

// Thread safe. A command's output goes where this process's goes. It gets this process's variables
// except those that make it a rank, and is killed with its children when this process dies.
class CommandQueue {
 public:
  static constexpr size_t kMaxWaiting = 100;  // later calls are dropped, and that is a failure

  // timeout: of each command, which is then killed with its children.
  // limit: what sets it, for messages
  explicit CommandQueue(std::chrono::milliseconds timeout,
                        std::string limit = "command.timeout_seconds");
  // Kills the one under way and drops the others.
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  void add(CommandCall call);
  // Waits until every command has ended.
  void finish();
  // One line for each that failed since the last call.
  std::vector<std::string> take_failures();

 private:
  void work();
  std::string run(const CommandCall& call);
  bool has_ended(pid_t child) const;
  int collect(pid_t child);

  std::chrono::milliseconds timeout_;
  const std::string limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CommandCall> waiting_;
  std::vector<std::string> failures_;
  bool is_running_ = false;
  bool is_ending_ = false;
  GroupGuard guard_;    // of the thread
  std::thread thread_;  // last: uses all of the above
};

struct EventCommandsConfig {
  TRIREME_KEYS_BEGIN(EventCommandsConfig)
  TRIREME_KEY(std::string, on_start, "", kMayChange,
              "shell command to run when training starts; empty = none")
  TRIREME_KEY(std::string, on_evaluate, "", kMayChange,
              "shell command to run after each evaluation; empty = none")
  TRIREME_KEY(std::string, on_step, "", kMayChange,
              "shell command to run after each step; empty = none")
  TRIREME_KEY(std::string, on_checkpoint, "", kMayChange,
              "shell command to run after each checkpoint; empty = none")
  TRIREME_KEY(std::string, on_stop, "", kMayChange,
              "shell command to run when training ends; empty = none")
  TRIREME_KEY(int64_t, timeout_seconds, 60, kMayChange, "kill a command after this many seconds",
              Range{1, 86400})
  TRIREME_KEY(
      bool, allow, false, kNotKept,
      "run the commands of a config found in a run's folder; valid only on the command line")
  TRIREME_KEYS_END()
};

// Commands run on rank 0, one after the other, while training goes on. They get the step's line of
// metrics.jsonl on stdin, and TRIREME_EVENT, TRIREME_STEP, TRIREME_FOLDER and TRIREME_CHECKPOINT in
// their environment. A command that fails is reported and changes nothing else. The run's end waits
// for those that are left.
class EventCommands final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override;
  void add_keys(Keys& keys) override { keys.add("command", config_); }
  bool is_on() const override;
  void on_start(RunView& run) override { start(run, Event::kStart, config_.on_start); }
  void on_evaluate(RunView& run) override { start(run, Event::kEvaluate, config_.on_evaluate); }
  void on_step(RunView& run) override { start(run, Event::kStep, config_.on_step); }
  void on_checkpoint(RunView& run, const std::filesystem::path& checkpoint) override {
    start(run, Event::kCheckpoint, config_.on_checkpoint, checkpoint.string());
  }
  void on_stop(RunView& run) override;

  // The commands that are set, by key: {"command.on_stop", "echo done"}.
  std::vector<std::pair<std::string, std::string>> commands() const;

 private:
  void start(RunView& run, Event event, const std::string& command,
             const std::string& checkpoint = "");
  void report(RunView& run);

  EventCommandsConfig config_;
  std::unique_ptr<CommandQueue> queue_;  // on rank 0, from the first command on
};

// Refuses commands that the user may never have seen: those of a config in the folder of a run,
// which the program writes and which moves between machines with its checkpoints. A command that
// was typed is the user's, and so is typed command.allow = true; the file's own says nothing.
// path: where the config was read. typed: the keys of the command line and their values.
// Throws: ConfigError that shows the commands
void require_own_commands(std::span<const NamedCallback> callbacks,
                          const std::filesystem::path& path,
                          std::span<const std::pair<std::string, std::string>> typed);

}  // namespace trireme::train
