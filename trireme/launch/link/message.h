// Messages between an agent and its worker, and the socket that they go through: one JSON object
// per packet, such as {"message": "leave", ...}. The members of the structs below are its keys, and
// all must be there. Unknown keys are skipped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "trireme/base/file/file.h"

namespace trireme::launch {

inline constexpr size_t kMaxPacketBytes = size_t{64} << 10;
// The version in a worker's "hello". An agent that reads another number ends the worker.
inline constexpr int64_t kLinkVersion = 1;
inline constexpr int64_t kMaxLinkRanks = 1 << 20;

// Agent to worker: takes part in this epoch as this rank.
struct Join {
  int64_t epoch = 1;  // from 1
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  std::string job;     // a name that no other epoch has
  std::string store;   // "tcp://HOST:PORT"; "" when all ranks are on one host
  std::string reason;  // why there is a new epoch, for people: "rank 2 was killed by signal 9"

  bool operator==(const Join&) const = default;
};

// Agent to worker: ends its part in this epoch and waits for "join".
struct Leave {
  int64_t epoch = 1;
  std::string reason;

  bool operator==(const Leave&) const = default;
};

// Agent to worker: finishes its step together with the other ranks, saves, and then leaves the
// epoch as after "leave", which may still come if that fails.
struct Finish {
  int64_t epoch = 1;
  std::string reason;

  bool operator==(const Finish&) const = default;
};

// Worker to agent: speaks the link.
struct Hello {
  int64_t version = kLinkVersion;
  std::string folder;  // of the run, absolute; "" when there is none

  bool operator==(const Hello&) const = default;
};

// Worker to agent: a step is finished.
struct StepDone {
  int64_t epoch = 1;
  int64_t step = 0;

  bool operator==(const StepDone&) const = default;
};

// Worker to agent: its groups of this epoch are gone, and it waits for "join".
struct Left {
  int64_t epoch = 1;
  int64_t step = 0;   // the last finished one
  std::string error;  // what it saw; "" when it was only told to leave

  bool operator==(const Left&) const = default;
};

// Worker to agent: the layout has no place for it in this epoch. It waits for "leave" or "join".
struct Spare {
  int64_t epoch = 1;

  bool operator==(const Spare&) const = default;
};

using ToWorker = std::variant<Join, Leave, Finish>;
using ToAgent = std::variant<Hello, StepDone, Left, Spare>;

// The packet of a message. Texts lose control characters, bytes that are not UTF-8, and what
// exceeds 4,096 bytes.
std::string to_packet(const ToWorker& message);
std::string to_packet(const ToAgent& message);

// `source` begins every error, for example "the link to the agent".
// Throws: ConfigError, one line, when the packet is not such a message or a value is out of range
ToWorker parse_to_worker(std::string_view packet, const std::string& source);
ToAgent parse_to_agent(std::string_view packet, const std::string& source);

enum class Received {
  kPacket,
  kTooLong,  // dropped: it had more than kMaxPacketBytes
  kNothing,  // for now
  kClosed,   // the peer has closed its end, or its process has ended
};

// One end of a link: a SOCK_SEQPACKET socket between two processes of a host. A packet arrives
// whole or not at all. One thread may receive while others send.
class PacketSocket {
 public:
  explicit PacketSocket(Descriptor socket);

  // Two connected ends, both close-on-exec.
  // Throws: Error when the host has no descriptor left
  static std::pair<PacketSocket, PacketSocket> make_pair();

  // Takes over an inherited descriptor and makes it close-on-exec, so that no command that this
  // process starts can hold the link open.
  // Throws: ConfigError naming `variable` when it is not such a socket
  static PacketSocket adopt(int fd, const std::string& variable);

  // Sends the packet. Waits up to `patience` for room in the socket, and by default not at all.
  // False: dropped, because there was no room or the peer is gone.
  bool send(std::string_view packet, std::chrono::milliseconds patience = {}) const;

  // Waits up to `patience` for a packet.
  Received receive(std::string& packet, std::chrono::milliseconds patience = {}) const;

  // Closes the link: from now on both ends receive kClosed, including a receive() that waits in
  // another thread.
  void shut_down() const;

  int descriptor() const { return socket_.get(); }
  void close() { socket_.close(); }

 private:
  Descriptor socket_;
};

}  // namespace trireme::launch
