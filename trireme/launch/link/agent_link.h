// A worker's end of the link to its agent. A thread reads what the agent says.
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

#include "trireme/launch/link/message.h"
#include "trireme/launch/link/packet_socket.h"

namespace trireme::launch::inline internal {

// All methods may be called from any thread.
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
  // The agent has closed the link or sent an invalid packet. Then the worker has to end by itself.
  bool is_gone() const;

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

}  // namespace trireme::launch::inline internal
