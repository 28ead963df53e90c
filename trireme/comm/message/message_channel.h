// What a transport of messages must be able to do so that MessageCommunicator can make a
// Communicator of it: send and receive blocks of bytes, matched by tag. It knows no tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

// One block on its way. Its memory must live until the message is waited for or destroyed.
class ChannelMessage {
 public:
  virtual ~ChannelMessage() = default;
  // Blocks until the memory may be reused (a send) or is filled (a recv); called once.
  // Throws: std::exception with the transport's own words: peer lost, cancelled, or `timeout`
  //         passed
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  // Makes a wait in another thread, or a later one, throw soon.
  virtual void cancel() = 0;
  // The rank a received message came from; after wait().
  virtual int source() const = 0;
};
using ChannelMessagePtr = std::unique_ptr<ChannelMessage>;

// Messages between two ranks with one tag arrive in the order of the calls, and both sides give the
// same size. Thread safety: calls may come from several threads.
class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What errors call it: "gloo over eth0 (10.0.0.1)".
  virtual const std::string& transport() const = 0;

  // Start at once and never wait. 0 <= tag < 2^31; num_bytes > 0; peer is another rank, and of a
  // recv may be kAnySource. Throws: std::exception when the channel is broken
  virtual ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) = 0;
  virtual ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) = 0;

  // Leaves word for the peers of why this group failed, and reads what a peer left; the first word
  // stays. Empty when there is none. Never throw, never wait long.
  virtual void leave_word(const std::string& reason) noexcept = 0;
  virtual std::string word_left() noexcept = 0;
  // Breaks the connections, once the last message is gone: the peers' messages then fail.
  virtual void close() noexcept = 0;

  // A channel between `members`, ranks of this one in the order they get there; this rank is one.
  // `uid` is unique among this channel's splits. Collective: the members.
  virtual std::unique_ptr<MessageChannel> split(const std::string& uid,
                                                const std::vector<int>& members,
                                                std::chrono::milliseconds timeout) = 0;
};

}  // namespace trireme::comm
