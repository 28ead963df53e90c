#include "trireme/launch/link/link_ends.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

constexpr const char* kWorkerSource = "the link to the worker";

}  // namespace

WorkerLink::WorkerLink() : WorkerLink(PacketSocket::make_pair()) {}

WorkerLink::WorkerLink(std::pair<PacketSocket, PacketSocket> ends)
    : socket_(std::move(ends.first)), child_(std::move(ends.second)) {}

std::optional<ToAgent> WorkerLink::receive() {
  if (is_closed_) return std::nullopt;
  std::string packet;
  switch (socket_.receive(packet)) {
    case Received::kPacket: return parse_to_agent(packet, kWorkerSource);
    case Received::kTooLong:
      throw ConfigError(
          concat(kWorkerSource, ": a packet has more than ", kMaxPacketBytes, " bytes"));
    case Received::kClosed: is_closed_ = true; break;
    case Received::kNothing: break;
  }
  return std::nullopt;
}

bool WorkerLink::send(const ToWorker& message) const { return socket_.send(to_packet(message)); }

// The link's thread reads for its whole life, so that a rank that waits inside a collective is
// still told to leave. All state is behind mutex_. Only finish_epoch_ is atomic: the training loop
// asks it after every step and must not wait for a reader. "leave" and "join" may overtake each
// other, so each keeps only its highest epoch and the comparison decides. A callback runs without
// the lock, and is_calling_ keeps another thread from replacing it meanwhile: on_leave() returns
// only when the callback before cannot run any more.

namespace {

constexpr const char* kVariable = "TRIREME_AGENT_FD";
constexpr const char* kAgentSource = "the link to the agent";

}  // namespace

AgentLink::AgentLink(int fd)
    : socket_(PacketSocket::adopt(fd, kVariable)), thread_([this] { read_all(); }) {}

AgentLink::~AgentLink() {
  // Ends the receive in the thread, which would wait for an hour otherwise.
  socket_.shut_down();
  thread_.join();
}

bool AgentLink::send(const ToAgent& message, std::chrono::milliseconds patience) const {
  return socket_.send(to_packet(message), patience);
}

void AgentLink::on_leave(int64_t epoch, OnLeave callback) {
  std::unique_lock lock(mutex_);
  // The one before may touch what its owner destroys next.
  changed_.wait(lock, [&] { return !is_calling_; });
  epoch_ = epoch;
  callback_ = std::move(callback);
  call_if_left(lock);
}

std::optional<Join> AgentLink::wait_join(int64_t after, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_named = [&] {
    return join_ && join_->epoch > after && !(leave_ && leave_->epoch >= join_->epoch);
  };
  // Also when the link ends: nobody else would wake this thread.
  changed_.wait_for(lock, timeout, [&] { return end_ || is_named(); });
  if (end_ && is_invalid_) throw ConfigError(*end_);
  if (end_) throw CommError(*end_);
  return is_named() ? join_ : std::nullopt;
}

std::optional<Leave> AgentLink::newest_leave() const {
  const std::lock_guard lock(mutex_);
  return leave_;
}

void AgentLink::read_all() {
  std::string packet;
  while (true) {
    // Bounded only because a wait has to have some bound; nothing happens at its end.
    const Received received = socket_.receive(packet, std::chrono::hours(1));
    try {
      if (received == Received::kPacket) {
        take(parse_to_worker(packet, kAgentSource));
      } else if (received == Received::kTooLong) {
        throw ConfigError(
            concat(kAgentSource, ": a packet has more than ", kMaxPacketBytes, " bytes"));
      } else if (received == Received::kClosed) {
        return end("the agent of this host is gone", /*is_invalid=*/false);
      }
    } catch (const std::exception& error) {
      // The worker cannot know what it has missed, so the link ends.
      return end(shown(error.what(), 1000), /*is_invalid=*/true);
    }
  }
}

void AgentLink::take(const ToWorker& message) {
  std::unique_lock lock(mutex_);
  if (const auto* join = std::get_if<Join>(&message)) {
    if (!join_ || join->epoch > join_->epoch) join_ = *join;
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    if (!leave_ || leave->epoch > leave_->epoch) leave_ = *leave;
  } else if (const auto* finish = std::get_if<Finish>(&message)) {
    finish_epoch_ = std::max(finish_epoch_.load(), finish->epoch);
  }
  // Before the callback: a thread in wait_join() need not wait for it.
  changed_.notify_all();
  call_if_left(lock);
}

void AgentLink::end(const std::string& reason, bool is_invalid) {
  std::unique_lock lock(mutex_);
  end_ = reason;
  is_invalid_ = is_invalid;
  changed_.notify_all();
  call_if_left(lock);
}

std::optional<std::string> AgentLink::left_locked(int64_t epoch) const {
  if (leave_ && leave_->epoch >= epoch) return leave_->reason;
  return end_;
}

// Without the lock, so that the callback may ask the link.
void AgentLink::call_if_left(std::unique_lock<std::mutex>& lock) {
  const std::optional<std::string> reason = left_locked(epoch_);
  if (!callback_ || !reason || is_calling_) return;
  // Taken out first: a callback is called once, whoever comes first.
  const OnLeave callback = std::exchange(callback_, nullptr);
  is_calling_ = true;
  lock.unlock();
  callback(*reason);
  lock.lock();
  is_calling_ = false;
  changed_.notify_all();
}

}  // namespace trireme::launch
