// A MessageChannel around another that keeps a virtual time: what each message would take over
// lines of a given rate, delay and loss. Nothing waits for that time, so a test needs no network
// and no root, and the same calls give the same times on every machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/net/paced_link.h"

namespace trireme::comm {

struct PacedOptions {
  std::vector<LinkShape> to;  // the line from this rank to each; its own is not used
  uint64_t seed = 1;
  size_t packet_bytes = 1500;  // a message is sent in packets of at most this size
};

class PacedLines;

// A rank's time goes on when it receives a message that arrives later, and by advance(). A message
// takes its sender's time with it, in eight bytes before its data. Sending takes no time of the
// sender: its packets queue on the line, however many they are (LinkShape::queue_bytes is not
// used). The far end misses a lost packet when it would have arrived; one delay later the sender
// knows and sends it again. A message has arrived when the last of its packets has.
//
// The time after a set of receives does not depend on the order in which they are waited for.
// All ranks of a group must be paced, with the same kind of channel below.
// Thread safety: that of the inner channel.
class PacedChannel final : public MessageChannel {
 public:
  // Throws: InternalError unless `options` has a line to each rank
  PacedChannel(std::unique_ptr<MessageChannel> inner, const PacedOptions& options);
  ~PacedChannel() override;

  // This rank's virtual time since the channel was made. Channels split from this one share it.
  std::chrono::nanoseconds now() const;
  // The rank computes for so long.
  void advance(std::chrono::nanoseconds duration);
  // What the line to `peer` carried, for all channels split from this one.
  LinkCounts counts_to(int peer) const;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& transport() const override { return transport_; }
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override;
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override;
  void leave_word(const std::string& reason) noexcept override { inner_->leave_word(reason); }
  std::string word_left() noexcept override { return inner_->word_left(); }
  void close() noexcept override { inner_->close(); }
  // The lines between the members stay what they were.
  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds timeout) override;

 private:
  PacedChannel(std::unique_ptr<MessageChannel> inner, std::shared_ptr<PacedLines> lines,
               std::vector<int> line_of);

  const std::unique_ptr<MessageChannel> inner_;
  const std::shared_ptr<PacedLines> lines_;
  const std::vector<int> line_of_;  // of each rank: its number when the lines were made
  const std::string transport_;
};

}  // namespace trireme::comm
