// One connection of a hub: introduces both sides, cuts received bytes into frames and queues frames
// by priority. Never blocks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/file/file.h"
#include "trireme/comm/net/store_wire.h"
#include "trireme/parallel/server/link/hub.h"

namespace trireme::parallel {

// The introduction is that of the job's store (comm/store/store_wire.h) with another magic. In the
// hello, `rank` is the number of the sender and `size` its role.
inline constexpr std::array<char, 16> kServerMagic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', '-',
                                                      'p', 'a', 'r', 'a', 'm', ' ', '1', '\n'};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // accepted: the other side opened the connection
  // number: of this side, for its hello
  Connection(Descriptor socket, bool accepted, std::string from, uint32_t number,
             const HubOptions& options);

  struct Arrivals {
    std::function<void(Role role, uint32_t number)> on_open;
    std::function<void(Frame frame)> on_frame;
  };
  // Reads what has arrived. Returns why the connection must end; empty if it goes on.
  std::optional<std::string> receive(const Arrivals& arrivals, HubCounts& counts);
  // Sends as much as the socket accepts. False: the peer is gone.
  bool flush(HubCounts& counts);

  void queue(Frame frame, int64_t priority);
  bool wants_to_send() const {
    return !opening_out_.empty() || (is_open() && (out_.has_value() || !queue_.empty()));
  }
  // Stops receiving and sending.
  void shut() { state_ = State::kEnding; }

  bool is_open() const { return state_ == State::kOpen; }
  int fd() const { return socket_.get(); }
  const std::string& from() const { return from_; }
  Clock::time_point heard() const { return heard_; }
  // This side did not listen for that long.
  void excuse(Clock::duration away) { heard_ += away; }
  Clock::time_point said() const { return said_; }

 private:
  enum class State { kWaitsForGreeting, kWaitsForHello, kWaitsForAnswer, kOpen, kEnding };

  std::optional<std::string> introduce(const Arrivals& arrivals);
  std::optional<std::string> take_greeting();
  std::optional<std::string> take_hello(const Arrivals& arrivals);
  std::optional<std::string> take_answer(const Arrivals& arrivals);
  std::optional<std::string> receive_frames(const Arrivals& arrivals, HubCounts& counts);
  // Returns the bytes read; 0: none for now; -1: the peer is gone.
  int64_t read_some(void* data, size_t num_bytes);
  bool read_message(void* message, size_t num_bytes, std::optional<std::string>& problem);
  template <typename T>
  void say(const T& message);

  Descriptor socket_;
  std::string from_;
  const HubOptions& options_;
  State state_;
  comm::wire::Greeting greeting_;
  comm::wire::Hello hello_;
  std::string refusal_;      // why it is ending
  std::string opening_in_;   // part of the introduction's next message
  std::string opening_out_;  // unsent part of the introduction
  FrameHeader in_header_;
  size_t in_bytes_ = 0;  // of header and payload
  at::Tensor in_payload_;
  std::map<std::pair<int64_t, uint64_t>, Frame> queue_;
  uint64_t num_queued_ = 0;
  std::optional<Frame> out_;  // being sent
  size_t out_bytes_ = 0;
  Clock::time_point heard_;
  Clock::time_point said_;
};

}  // namespace trireme::parallel
