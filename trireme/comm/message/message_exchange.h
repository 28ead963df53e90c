// Checks calls, moves blocks and reports failures, between MessageCommunicator's algorithms and a
// MessageChannel. Every collective starts with a small message between each two ranks that
// describes the call. A mismatch is therefore an error that names both sides, before data moves.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/call.h"
#include "trireme/comm/message/message_channel.h"

namespace trireme::comm::inline internal {

struct Block {
  void* data = nullptr;
  size_t num_bytes = 0;
};
struct ConstBlock {
  const void* data = nullptr;
  size_t num_bytes = 0;
};

// A library's error text, on one line and without libtorch's stack trace.
std::string words_of(const std::exception& error);

// Thread safety: one collective at a time; sends, recvs and abort() from any thread.
class MessageExchange {
 public:
  // The error prefix and the time limit of one operation.
  struct Scope {
    std::string what;  // "all_reduce(Float, 3 elements, sum) #7"
    std::chrono::steady_clock::time_point start;
    std::chrono::milliseconds timeout{};
  };

  MessageExchange(std::unique_ptr<MessageChannel> channel, std::string name,
                  std::chrono::milliseconds timeout);

  MessageChannel& channel() const { return *channel_; }
  const std::string& name() const { return name_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Begins a collective: tells every peer the call and the bytes to expect, and compares theirs.
  // to[r], from[r]: the blocks this rank sends to and expects from rank r; empty when all sizes
  // follow from the call.
  // Comm:   2(p-1) messages of 96 bytes
  // Throws: CommError when a peer is lost, late, or calls something else
  Scope meet(const Call& call, std::chrono::milliseconds timeout,
             std::span<const ConstBlock> to = {}, std::span<const Block> from = {});
  // Sends to[r] to rank r and receives from[r] from rank r, all at once. One entry per rank;
  // ignores empty blocks and this rank's own.
  void exchange(const Scope& scope, std::span<const ConstBlock> to, std::span<const Block> from);

  // Point to point, in two steps, so that messages have the order of the begin_ calls.
  struct Pending {
    Scope scope;
    std::shared_ptr<void> note;  // the head's memory; must outlive it
    ChannelMessagePtr head;
    ChannelMessagePtr body;
    int peer = -1;
  };
  std::shared_ptr<Pending> begin_send(const Call& call, ConstBlock data, int peer, int tag,
                                      std::chrono::milliseconds timeout);
  void finish_send(Pending& pending);
  std::shared_ptr<Pending> begin_recv(const Call& call, int peer, int tag,
                                      std::chrono::milliseconds timeout);
  // Returns the rank that sent.
  int finish_recv(Pending& pending, const Call& call, Block data);

  // From now on every call throws CommError with `reason`, here and on the peers. The first reason
  // stays. leaves_word: false: the peers only see that the connections break, and nothing waits for
  // a store that may be gone.
  void abort(const std::string& reason, bool leaves_word = true) noexcept;

 private:
  Scope scope_of(const Call& call, const std::string& which, std::chrono::milliseconds timeout);
  [[noreturn]] void fail(const Scope& scope, const std::string& reason);
  ChannelMessagePtr post(const Scope& scope, int peer,
                         const std::function<ChannelMessagePtr()>& start);
  void wait(const Scope& scope, ChannelMessage& message, int peer);
  std::string where(const Scope& scope) const;
  std::string failure() const;

  const std::unique_ptr<MessageChannel> channel_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  uint64_t sequence_ = 0;  // of collectives
  mutable std::mutex mutex_;
  std::vector<uint64_t> sent_;           // messages to each peer
  std::set<ChannelMessage*> in_flight_;  // being waited for
  std::string failure_;
};

}  // namespace trireme::comm::inline internal
