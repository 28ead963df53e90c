// What MessageCommunicator is made over: a MessageChannel, which a transport provides, and a
// MessageExchange, which checks calls, moves blocks and reports failures between the algorithms and
// the channel. Every collective starts with a small message between each two ranks that describes
// the call. A mismatch is therefore an error that names both sides, before data moves.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/wait_sums.h"

namespace trireme::comm {

// A block being sent or received. Its memory must live until wait() returns or the message is
// destroyed.
class ChannelMessage {
 public:
  virtual ~ChannelMessage() = default;
  // Blocks until the memory may be reused (send) or is filled (recv). Call once.
  // Throws: std::exception in the transport's words: peer lost, cancelled, or `timeout` passed
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  // Makes a current or later wait() throw soon. May be called from another thread.
  virtual void cancel() = 0;
  // The rank a received message came from; after wait().
  virtual int source() const = 0;
};
using ChannelMessagePtr = std::unique_ptr<ChannelMessage>;

// The interface that a transport must provide for MessageCommunicator: it sends and receives blocks
// of bytes, matched by tag. It knows nothing of tensors. Messages between two ranks with the same
// tag arrive in the order of the calls. Both sides give the same size. Thread safety: any thread.
class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The transport's name in errors: "gloo over eth0 (10.0.0.1)".
  virtual const std::string& transport() const = 0;

  // Both start at once and never wait. 0 <= tag < 2^31; num_bytes > 0; peer is another rank, or
  // kAnySource for a recv.
  // Throws: std::exception when the channel is broken
  virtual ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) = 0;
  virtual ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) = 0;

  // leave_word() tells the peers why this group failed; word_left() returns what a peer left, or
  // "". The first word stays. Neither throws or waits long.
  virtual void leave_word(const std::string& reason) noexcept = 0;
  virtual std::string word_left() noexcept = 0;
  // Closes the channel. When its last message is gone, the connections break and the peers'
  // messages fail.
  virtual void close() noexcept = 0;

  // A channel between `members`. They are ranks of this channel, in the order of their new ranks,
  // and include this rank. `uid` is unique among this channel's splits.
  // Collective: the members
  virtual std::unique_ptr<MessageChannel> split(const std::string& uid,
                                                const std::vector<int>& members,
                                                std::chrono::milliseconds timeout) = 0;
};

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

  // Adds to `waits` how long collectives wait for the calls of the peers, one after the other in
  // rank order. world_ranks: of the members. Before the first collective.
  void count_waits(std::shared_ptr<WaitSums> waits, std::vector<int> world_ranks);

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

  // Point to point, in two steps, so that messages have the order of the begin_ calls. A message
  // whose tag says that it is sized (sized_message.h) has no head.
  struct Pending {
    Scope scope;
    std::shared_ptr<void> note;  // the head's memory; must outlive it
    ChannelMessagePtr head;      // null: the message is sized
    ChannelMessagePtr body;
    int peer = -1;
  };
  std::shared_ptr<Pending> begin_send(const Call& call, ConstBlock data, int peer, int tag,
                                      std::chrono::milliseconds timeout);
  void finish_send(Pending& pending);
  std::shared_ptr<Pending> begin_recv(const Call& call, Block data, int peer, int tag,
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
  std::shared_ptr<WaitSums> waits_;  // null: nobody counts
  std::vector<int> world_ranks_;     // for them
};

}  // namespace trireme::comm
