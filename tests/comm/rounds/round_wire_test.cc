#include "trireme/comm/rounds/round_wire.h"

#include <gtest/gtest.h>

namespace trireme::comm::wire {
namespace {

// A message of `write`, without its length and its first byte.
template <typename Write>
Bytes fields_of(const Write& write) {
  FrameWriter writer(1);
  write(writer);
  const Bytes& frame = writer.finish();
  return {frame.begin() + 5, frame.end()};
}

// Reads all of it, and nothing of it cut short or made longer.
template <typename Read>
auto read_only_whole(const Bytes& fields, const Read& read) {
  for (size_t size = 0; size < fields.size(); ++size) {
    FrameReader cut{std::span<const uint8_t>(fields).first(size)};
    EXPECT_FALSE(read(cut)) << size;
  }
  Bytes longer = fields;
  longer.push_back(0);
  FrameReader more(longer);
  EXPECT_FALSE(read(more));
  FrameReader whole(fields);
  return read(whole);
}

TEST(RoundWire, AMemberIsReadAsItWasWritten) {
  const RoundMember member{.place = 3,
                           .num_places = 4,
                           .rank = 1,
                           .num_ranks = 2,
                           .process = "p",
                           .run = "train.seed = 1\n",
                           .step = 50,
                           .hash = "abc",
                           .last_step = 1000,
                           .quorum = 3,
                           .grace_ms = 250};
  const auto read = read_only_whole(
      fields_of([&](FrameWriter& writer) { write_member(writer, member); }), read_member);
  ASSERT_TRUE(read);
  EXPECT_EQ(std::tie(read->place, read->num_places, read->rank, read->num_ranks, read->step,
                     read->last_step, read->quorum, read->grace_ms),
            std::tie(member.place, member.num_places, member.rank, member.num_ranks, member.step,
                     member.last_step, member.quorum, member.grace_ms));
  EXPECT_EQ(std::tie(read->process, read->run, read->hash),
            std::tie(member.process, member.run, member.hash));
}

TEST(RoundWire, ALongTextIsNoMember) {
  const RoundMember member{.run = std::string(kMaxRoundText + 1, 'x')};
  const Bytes fields = fields_of([&](FrameWriter& writer) { write_member(writer, member); });
  FrameReader reader(fields);
  EXPECT_FALSE(read_member(reader));
}

TEST(RoundWire, AWelcomeIsReadAsItWasWritten) {
  const RoundWelcome welcome{
      .standing = RoundStanding::kBehind, .head = 7, .state = -1, .lease_ms = 10'000, .donor = 2};
  const auto read = read_only_whole(
      fields_of([&](FrameWriter& writer) { write_welcome(writer, welcome); }), read_welcome);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->standing, RoundStanding::kBehind);
  EXPECT_EQ(read->head, 7);
  EXPECT_EQ(read->state, -1);
  EXPECT_EQ(read->lease_ms, 10'000);
  EXPECT_EQ(read->donor, 2);
}

TEST(RoundWire, AnOutcomeIsReadAsItWasWritten) {
  const RoundOutcome outcome{
      .kind = RoundOutcome::Kind::kDecided, .places = {0, 2, 3}, .donor = 2, .has_counted = true};
  const auto read = read_only_whole(
      fields_of([&](FrameWriter& writer) { write_outcome(writer, outcome); }), read_outcome);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, outcome.kind);
  EXPECT_EQ(read->places, outcome.places);
  EXPECT_EQ(read->donor, 2);
  EXPECT_TRUE(read->has_counted);
}

TEST(RoundWire, AnOutcomeWithWrongPlacesIsNone) {
  for (const std::vector<int64_t>& numbers :
       std::vector<std::vector<int64_t>>{{2, 0, 0, 2, 1, 1},
                                         {2, 0, 0, 2, 1, 0},
                                         {2, 0, 0, 1, -1},
                                         {2, 0, 0, 1, kMaxRoundPlaces},
                                         {4, 0, 0, 0},
                                         {-1, 0, 0, 0},
                                         {2, 0, 2, 0},
                                         {2, 0, -1, 0},
                                         {2, 0, 0, int64_t{1} << 40},
                                         {2, 0, 0, -2}}) {
    const Bytes fields = fields_of([&](FrameWriter& writer) {
      for (const int64_t number : numbers) writer.number(number);
    });
    FrameReader reader(fields);
    EXPECT_FALSE(read_outcome(reader));
  }
}

}  // namespace
}  // namespace trireme::comm::wire
