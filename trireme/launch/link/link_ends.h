// The two ends of the link between an agent and one of its workers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "trireme/launch/link/message.h"

namespace trireme::launch {

// The agent's end. How it is used: make it; start the worker with child_descriptor() open across
// exec and its number in TRIREME_AGENT_FD; close_child(); poll descriptor() for input. Never waits.
// Not thread safe.
class WorkerLink {
 public:
  // Both ends are close-on-exec; the child has to clear the flag of its own, or to dup2() it.
  // Throws: Error when the host has no descriptor left
  WorkerLink();

  // The end that the worker inherits; -1 after close_child().
  int child_descriptor() const { return child_.descriptor(); }
  // Closes this process's copy of the worker's end. Until then the worker's death does not show.
  void close_child() { child_.close(); }

  // For poll(). Readable when there is a message or the worker has closed its end.
  int descriptor() const { return socket_.descriptor(); }

  // The next message; nothing when there is none, for now or because is_closed().
  // Throws: ConfigError when the worker sent something else. Later messages can still be received.
  std::optional<ToAgent> receive();
  // receive() has found that the worker has closed its end or has ended. It then returns nothing
  // for ever; do not poll any more.
  bool is_closed() const { return is_closed_; }

  // False: dropped, because the worker is gone or has not read for very long.
  bool send(const ToWorker& message) const;

 private:
  explicit WorkerLink(std::pair<PacketSocket, PacketSocket> ends);

  PacketSocket socket_;
  PacketSocket child_;
  bool is_closed_ = false;
};

// The worker's end. A thread reads what the agent says. All methods may be called from any thread.
class AgentLink {
 public:
  // Why a worker has to end its part in an epoch. Must not throw or wait without bound.
  using OnLeave = std::function<void(const std::string& reason)>;

  // `fd` is the value of the variable TRIREME_AGENT_FD. Takes it over.
  // Throws: ConfigError when it is not the link's descriptor
  explicit AgentLink(int fd);
  // The agent sees that the link is closed.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // Sends the message, or drops it when the socket is full for longer than `patience` or the agent
  // is gone. Never waits by default, which is right for "step". Returns whether it was sent.
  bool send(const ToAgent& message, std::chrono::milliseconds patience = {}) const;

  // Calls `callback` once, in the reading thread, when the agent says that `epoch` or a later one
  // has to be left, sends an invalid packet, or is gone. If that has happened already, calls it at
  // once in this thread. Replaces the callback before, which has returned when this returns. An
  // empty function: nobody is called. Must not be called from a callback.
  void on_leave(int64_t epoch, OnLeave callback);

  // Whether the agent has asked to finish this epoch ("finish"). Never waits.
  bool has_to_finish(int64_t epoch) const { return finish_epoch_.load() >= epoch; }

  // The next epoch to take part in, later than `after`; nothing when none is named within
  // `timeout`. The newest "join" counts, unless its epoch has been left again.
  // Throws: CommError when the agent is gone, ConfigError when it sent an invalid packet
  std::optional<Join> wait_join(int64_t after, std::chrono::milliseconds timeout);

  // The agent's "leave" of the highest epoch. It may name one whose "join" wait_join() never gave.
  std::optional<Leave> newest_leave() const;

 private:
  void read_all();
  void take(const ToWorker& message);
  void end(const std::string& reason, bool is_invalid);
  std::optional<std::string> left_locked(int64_t epoch) const;
  void call_if_left(std::unique_lock<std::mutex>& lock);

  const PacketSocket socket_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Join> join_;               // the newest
  std::optional<Leave> leave_;             // of the highest epoch
  std::optional<std::string> end_;         // why nothing more is read
  bool is_invalid_ = false;                // the end is an invalid packet
  std::atomic<int64_t> finish_epoch_ = 0;  // the highest that is to be finished
  int64_t epoch_ = 0;                      // that of callback_
  OnLeave callback_;
  bool is_calling_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace trireme::launch
