// A model of a line between two hosts: rate, delay, jitter, loss and a bounded queue, as functions
// of time. It has no clock, so a test keeps the time and a network of namespaces takes the
// machine's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "trireme/base/random/random.h"

namespace trireme::comm {

// More than this share of lost packets is no line any more.
inline constexpr double kMostLoss = 0.9;

struct LinkShape {
  double rate = 1e9;                   // bits per second
  std::chrono::nanoseconds delay{0};   // one way
  std::chrono::nanoseconds jitter{0};  // further delay, uniform from 0 to this
  double loss = 0;                     // share of the packets, 0 to kMostLoss
  double queue_bytes = 1 << 20;        // a packet that finds more waiting is dropped
  bool operator==(const LinkShape&) const = default;
};

struct LinkCounts {
  uint64_t packets = 0;  // that were put on the line, those lost on it included
  uint64_t bytes = 0;    // of these
  uint64_t lost = 0;     // of these packets
  uint64_t dropped = 0;  // packets that were never on the line: the queue was full
};

// One direction. Packets leave one after another at the line's rate and never overtake each other.
// What happens to packet n is a pure function of (key, n), of its size and of the times of sending.
class PacedLink {
 public:
  // Throws: InternalError unless rate > 0, 0 <= loss <= kMostLoss and no time is negative
  PacedLink(const LinkShape& shape, RandomKey key);

  enum class Fate { kArrives, kLost, kDropped };
  struct Passage {
    Fate fate = Fate::kArrives;
    int64_t arrival_ns = 0;  // when its last bit is there, or would have been
  };
  // Sends a packet at `now_ns`, on any clock. A time before that of an earlier packet counts as
  // that one's.
  Passage send(int64_t now_ns, size_t num_bytes);

  // From the next packet on, `delay` and the share `loss` of the packets come on top. Zeros end it.
  void worsen(std::chrono::nanoseconds delay, double loss);

  const LinkShape& shape() const { return shape_; }
  const LinkCounts& counts() const { return counts_; }

 private:
  LinkShape shape_;
  RandomKey loss_key_;
  RandomKey jitter_key_;
  double further_delay_ns_ = 0;
  double further_loss_ = 0;
  uint64_t num_offered_ = 0;
  int64_t free_ns_;          // when the line has sent all it has taken
  int64_t last_arrival_ns_;  // of a packet that was put on it
  LinkCounts counts_;
};

}  // namespace trireme::comm
