// The messages between learners that come and go and the service at which they meet
// (docs/design/store-protocol.md), over connections of the job's store. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/comm/net/store_wire.h"
#include "trireme/comm/rounds/round_table.h"

namespace trireme::comm::wire {

// Each begins with the place, the rank and the process of who asks, but kEnroll with a member.
enum class RoundRequest : uint8_t {
  kEnroll = 32,  // a member -> standing, step of the head, step of the whole state, lease, donor
  kPut,          // what, step, size of all, offset, bytes -> how many bytes are there
  kOutcome,  // step -> kind, donor, number of places, places; kGone: open, send the message again
  kGet,      // what, step, place, offset, at most so many bytes -> size of all, bytes
  kLeave,    // ->
};
enum class RoundReply : uint8_t {
  kDone = 1,
  kRefused,  // the reason, as text for people
  kUnknown,  // who asks has to enroll first
  kGone,     // what is asked for is not there, or not any more
};
// What a rank sends to its equals in other learners.
enum class RoundBytes : uint8_t { kMessage = 0, kState = 1 };

inline constexpr int64_t kRoundPieceBytes = int64_t{4} << 20;
inline constexpr size_t kMaxRoundText = size_t{1} << 16;

// Answer to kEnroll.
struct RoundWelcome {
  RoundStanding standing = RoundStanding::kUnknown;
  int64_t head = -1;   // -1: none yet
  int64_t state = -1;  // the step of the state that those behind may fetch; -1: none
  int64_t lease_ms = 0;
  int donor = -1;  // RoundTable::last_donor()
};

void write_member(FrameWriter& writer, const RoundMember& member);
// Nothing when it is cut short, or a text is longer than kMaxRoundText.
std::optional<RoundMember> read_member(FrameReader& reader);

void write_welcome(FrameWriter& writer, const RoundWelcome& welcome);
std::optional<RoundWelcome> read_welcome(FrameReader& reader);

void write_outcome(FrameWriter& writer, const RoundOutcome& outcome);
std::optional<RoundOutcome> read_outcome(FrameReader& reader);

}  // namespace trireme::comm::wire
