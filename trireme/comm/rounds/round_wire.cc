#include "trireme/comm/rounds/round_wire.h"

#include <limits>

namespace trireme::comm::wire {
namespace {

// A number that fits an int; -1 for any other.
int small_number(FrameReader& reader) {
  const int64_t number = reader.number();
  return number < -1 || number > std::numeric_limits<int>::max() ? -1 : static_cast<int>(number);
}

}  // namespace

void write_member(FrameWriter& writer, const RoundMember& member) {
  writer.number(member.place)
      .number(member.rank)
      .text(member.process)
      .number(member.num_places)
      .number(member.num_ranks)
      .text(member.run)
      .number(member.step)
      .text(member.hash)
      .number(member.last_step)
      .number(member.quorum)
      .number(member.grace_ms);
}

std::optional<RoundMember> read_member(FrameReader& reader) {
  RoundMember member;
  member.place = small_number(reader);
  member.rank = small_number(reader);
  member.process = reader.text();
  member.num_places = small_number(reader);
  member.num_ranks = small_number(reader);
  member.run = reader.text();
  member.step = reader.number();
  member.hash = reader.text();
  member.last_step = reader.number();
  member.quorum = small_number(reader);
  member.grace_ms = reader.number();
  const bool is_short = member.process.size() <= kMaxRoundText &&
                        member.run.size() <= kMaxRoundText && member.hash.size() <= kMaxRoundText;
  if (!reader.ok() || !reader.at_end() || !is_short) return std::nullopt;
  return member;
}

void write_welcome(FrameWriter& writer, const RoundWelcome& welcome) {
  writer.number(static_cast<int64_t>(welcome.standing))
      .number(welcome.head)
      .number(welcome.state)
      .number(welcome.lease_ms)
      .number(welcome.donor);
}

std::optional<RoundWelcome> read_welcome(FrameReader& reader) {
  RoundWelcome welcome;
  const int64_t standing = reader.number();
  welcome.standing = static_cast<RoundStanding>(standing);
  welcome.head = reader.number();
  welcome.state = reader.number();
  welcome.lease_ms = reader.number();
  welcome.donor = small_number(reader);
  const bool is_valid = standing >= 0 && standing <= static_cast<int64_t>(RoundStanding::kBehind) &&
                        welcome.head >= -1 && welcome.state >= -1 && welcome.lease_ms > 0 &&
                        welcome.lease_ms <= int64_t{1} << 40;
  if (!reader.ok() || !reader.at_end() || !is_valid) return std::nullopt;
  return welcome;
}

void write_outcome(FrameWriter& writer, const RoundOutcome& outcome) {
  writer.number(static_cast<int64_t>(outcome.kind))
      .number(outcome.donor)
      .number(outcome.has_counted ? 1 : 0)
      .number(std::ssize(outcome.places));
  for (const int place : outcome.places) writer.number(place);
}

std::optional<RoundOutcome> read_outcome(FrameReader& reader) {
  RoundOutcome outcome;
  const int64_t kind = reader.number();
  outcome.kind = static_cast<RoundOutcome::Kind>(kind);
  outcome.donor = small_number(reader);
  const int has_counted = small_number(reader);
  outcome.has_counted = has_counted == 1;
  const int num_places = small_number(reader);
  const bool is_valid = kind >= 0 && kind <= static_cast<int64_t>(RoundOutcome::Kind::kBehind) &&
                        (has_counted == 0 || has_counted == 1) && num_places >= 0 &&
                        num_places <= kMaxRoundPlaces;
  if (!reader.ok() || !is_valid) return std::nullopt;
  for (int i = 0; i < num_places; ++i) {
    const int place = small_number(reader);
    const bool is_next = place > (outcome.places.empty() ? -1 : outcome.places.back());
    if (!is_next || place >= kMaxRoundPlaces) return std::nullopt;
    outcome.places.push_back(place);
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return outcome;
}

}  // namespace trireme::comm::wire
