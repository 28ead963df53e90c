// What a job says, in threads of its own, so that whoever does not take it holds nobody else: lines
// to people, who may stop reading (a pager waits for a key, a terminal was stopped with Ctrl-S, the
// reader has left), and a run's logs and events to a folder whose file system may not answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/launch/journal/event.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {

// Runs tasks in a thread of its own, in order. One thread uses it.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  // max_bytes: how much may wait, as post() is told.
  explicit TaskQueue(size_t max_bytes);
  // Drops the tasks that wait. One that hangs is left behind, so a task has to own what it uses.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Never waits. Returns false, and drops the task, when there is no room. A queue that was full
  // has room again once half of it is free. The task gets no signals, and must not throw.
  bool post(size_t num_bytes, Task task);
  // Waits until all tasks are done, or until none has ended for `patience`. Returns whether all are
  // done.
  bool finish(std::chrono::milliseconds patience);
  // How long the task under way has run; 0: there is none.
  std::chrono::milliseconds running_for() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

// Gets what people should see. `line` has no newline and may be hostile. Two threads of the agent's
// call it, one for lines of each kind. It may wait for people: that holds nothing but later lines.
class AgentObserver {
 public:
  virtual ~AgentObserver() = default;
  virtual void on_line(const std::string& line, bool is_error) = 0;
};

// One thread uses it. Never waits, except in finish(). Lines that nobody takes are dropped once
// about a megabyte waits; a line says how many.
class Terminal {
 public:
  explicit Terminal(std::shared_ptr<AgentObserver> observer);

  void show(const std::string& line, bool is_error = false);
  // Waits until all are shown, but not for one that does not read.
  void finish();

 private:
  // Output and errors have separate queues, since one of them may be blocked.
  struct Way {
    TaskQueue tasks;
    int64_t num_dropped = 0;
  };
  bool post(Way& way, const std::string& line, bool is_error);
  bool tell_dropped(Way& way, bool is_error);

  std::shared_ptr<AgentObserver> observer_;  // of the threads, which may outlive this
  Way output_;
  Way errors_;
};

// One thread uses it. Never waits and never throws while it writes. What the folder keeps out, or
// does not take until `max_bytes` wait, is lost and counted in the files.
class JournalWriter {
 public:
  explicit JournalWriter(std::filesystem::path run_folder, size_t max_bytes = size_t{64} << 20);

  // log_name: of the file in RUN/logs, by log_line.h.
  void write(const std::string& log_name, std::vector<LogLine> lines);
  void write(const Event& event);

  // Lines for the user about what could not be kept: one for each outage of the folder.
  std::vector<std::string> take_problems();
  // Waits, but not for a folder that does not answer. What is not written then is lost.
  void finish();

 private:
  struct Files;

  void post(const std::string& log_name, size_t num_bytes, int64_t num_lines,
            std::function<void(Files&, int64_t num_lost)> write);

  std::shared_ptr<Files> files_;             // of the thread, which may outlive this
  std::map<std::string, int64_t> num_lost_;  // lines, by log name; "": events
  bool is_told_ = false;                     // that the folder does not answer
  bool has_given_up_ = false;                // on it, in finish()
  TaskQueue tasks_;
};

}  // namespace trireme::launch
