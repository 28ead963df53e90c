// Shell commands that run one after the other beside the program.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace trireme::train::inline internal {

struct CommandCall {
  std::string name;                      // in messages
  std::string command;                   // for /bin/sh -c
  std::string input{};                   // on its stdin
  std::vector<std::string> variables{};  // "NAME=value", beside this process's environment
};

// Thread safe. A command's output goes where this process's goes.
class CommandQueue {
 public:
  static constexpr size_t kMaxWaiting = 100;  // later calls are dropped, and that is a failure

  // timeout: of each command, which is then killed with its children.
  explicit CommandQueue(std::chrono::milliseconds timeout);
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

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CommandCall> waiting_;
  std::vector<std::string> failures_;
  bool is_running_ = false;
  bool is_ending_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace trireme::train::inline internal
