// The interface that a transport must provide for MessageCommunicator: it sends and receives blocks
// of bytes, matched by tag. It knows nothing of tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm::inline internal {

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

// Messages between two ranks with the same tag arrive in the order of the calls. Both sides give
// the same size. Thread safety: any thread.
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

}  // namespace trireme::comm::inline internal
