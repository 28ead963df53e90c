#include "trireme/comm/recorder/diagnosis.h"

#include <array>
#include <cstring>
#include <limits>
#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/observed.h"
#include "tests/comm/recorder/recorded_ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/sized_message.h"

namespace trireme::comm {
namespace {

using Kind = Finding::Kind;
using Ranks = std::vector<int>;

std::vector<Finding> diagnosis_of(const std::vector<Observed>& ranks) {
  return diagnose(observed(ranks));
}

// The kinds and ranks of all findings: "late 1; waiting 0 2".
std::string outline(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += (text.empty() ? "" : "; ") + std::string(name_of(finding.kind));
    for (const int rank : finding.ranks) text += " " + std::to_string(rank);
  }
  return text;
}

TEST(Diagnosis, NamesTheLateRankItsCallAndSinceWhenOthersWait) {
  auto ranks = run_of(3);
  ranks[0].call("all_reduce", 60);
  ranks[2].call("all_reduce", 70);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "late 1");
  EXPECT_FALSE(is_healthy(findings));
  EXPECT_EQ(findings[0].text,
            "rank 1 is late: it has not begun all_reduce #2 of group world; ranks 0 and 2 wait in "
            "all_reduce #2 of group world since 2026-01-02 03:05:05 UTC (40 s); its last call, "
            "barrier #1 of group world, ended 98 s ago (process 4001 on host)");
  EXPECT_EQ(findings[0].group, "world");
  EXPECT_EQ(findings[0].sequence, 2u);
  EXPECT_EQ(findings[0].operation, "all_reduce");
  EXPECT_EQ(findings[0].waited, std::chrono::seconds(40));
}

TEST(Diagnosis, LateAfterDecidesWhoIsLate) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 97);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "progress 0 1");
  EXPECT_EQ(outline(diagnose(observed(ranks), {.late_after = std::chrono::seconds(2)})), "late 1");
}

TEST(Diagnosis, NamesTheDeadRank) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 99.5);
  ranks[1].call("all_reduce", 99.0);
  ranks[1].process(ProcessState::kGone);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "died 1");
  EXPECT_EQ(findings[0].text,
            "rank 1 died: process 4001 on host is gone, last seen 2026-01-02 03:05:44 UTC; it was "
            "in all_reduce #2 of group world since 2026-01-02 03:05:44 UTC; rank 0 waits in "
            "all_reduce #2 of group world since 2026-01-02 03:05:44 UTC (0.50 s)");
  // Its peers give up and leave, which is no fault of theirs.
  ranks[0].fail(99.6).close(99.7);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "died 1");
}

TEST(Diagnosis, DeadRankIsNamedWhenNobodyWaits) {
  auto ranks = run_of(2);
  ranks[1].process(ProcessState::kGone);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "died 1");
}

TEST(Diagnosis, OfManyDeadTheOneOthersWaitedForComesFirst) {
  auto ranks = run_of(3);
  ranks[0].call("all_reduce", 50);
  ranks[2].call("all_reduce", 51);
  for (Observed& rank : ranks) rank.process(ProcessState::kGone);
  const auto findings = diagnosis_of(ranks);
  EXPECT_EQ(outline(findings), "died 1; died 0; died 2");
}

TEST(Diagnosis, NamesTheStoppedRankAtOnce) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 99.9);
  ranks[1].process(ProcessState::kStopped);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "stopped 1");
  EXPECT_PRED2(contains, findings[0].text, "rank 1 is stopped: process 4001 on host");
  EXPECT_PRED2(contains, findings[0].text, "kill -CONT 4001");
  EXPECT_PRED2(contains, findings[0].text, "rank 0 waits in all_reduce #2 of group world");
}

TEST(Diagnosis, ShowsBothSidesOfAMismatch) {
  auto ranks = run_of(3);
  for (const int rank : {0, 2}) ranks[rank].call("all_reduce", 10);
  Record& call = ranks[1].call("broadcast", 10);
  call.peer = 0;
  for (Observed& rank : ranks) rank.fail(10.5).close(11);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "mismatch 1");
  EXPECT_EQ(findings[0].text,
            "the ranks differ in call #2 of group world: rank 1 calls broadcast(Float [4, 8], root "
            "0) and ranks 0 and 2 call all_reduce(Float [4, 8], sum)");
}

TEST(Diagnosis, MismatchComesBeforeTheDeathThatItCaused) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 10);
  ranks[1].call("barrier", 10);
  ranks[1].process(ProcessState::kGone);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "mismatch 0; died 1");
}

TEST(Diagnosis, FollowsWaitsAcrossGroupsToTheCulprit) {
  // 0 waits in world for 1 and 3, 1 waits in "left" for 2, 2 waits in "right" for 3.
  auto ranks = run_of(4);
  const int left = ranks[1].add_group("left", {1, 2});
  EXPECT_EQ(ranks[2].add_group("left", {1, 2}), left);
  const int right = ranks[2].add_group("right", {2, 3});
  const int right_of_3 = ranks[3].add_group("right", {2, 3});
  EXPECT_NE(right, right_of_3);
  ranks[0].call("all_reduce", 30);
  ranks[1].call("all_gather", 20, -1, left);
  ranks[2].call("barrier", 10, -1, right);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "late 3; waiting 1; waiting 0");
  EXPECT_PRED2(contains, findings[0].text,
               "it has not begun barrier #1 of group right; rank 2 waits");
  EXPECT_PRED2(contains, findings[1].text, "rank 1 waits in all_gather #1 of group left since");
  EXPECT_PRED2(contains, findings[1].text, "for rank 2");
  EXPECT_PRED2(contains, findings[2].text, "for ranks 1, 2 and 3");
}

TEST(Diagnosis, RanksThatWaitForEachOtherAreADeadlock) {
  auto ranks = run_of(2);
  int second = 0;
  for (Observed& rank : ranks) second = rank.add_group("second", {0, 1});
  ranks[0].call("all_reduce", 10);
  ranks[1].call("all_reduce", 10, -1, second);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "deadlock 0 1");
  EXPECT_PRED2(contains, findings[0].text, "ranks 0 and 1 wait for each other: rank");
  EXPECT_PRED2(contains, findings[0].text, "rank 0 waits in all_reduce #2 of group world since");
  EXPECT_PRED2(contains, findings[0].text, "rank 1 waits in all_reduce #1 of group second since");
}

TEST(Diagnosis, TwoSendsThatMeetNoRecvAreADeadlock) {
  auto ranks = run_of(2);
  ranks[0].message("send", 1, 0, 10);
  ranks[1].message("send", 0, 0, 10);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "deadlock 0 1");
}

TEST(Diagnosis, RankThatLeftIsToldFromOneThatIsLate) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 10);
  ranks[1].close(9);
  auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "left 1");
  EXPECT_PRED2(contains, findings[0].text,
               "rank 1 left the run at 2026-01-02 03:04:14 UTC and had not begun all_reduce #2");
  // Its peer may see it go before it has closed its ring.
  ranks[0].fail(10.5).close(11);
  ranks[1].close(10.6);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "left 1");
  // One that came after the others had given up was late.
  ranks = run_of(2);
  ranks[0].call("all_reduce", 10);
  ranks[0].fail(15).close(16);
  ranks[1].call("all_reduce", 60);
  ranks[1].fail(60).close(61);
  findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "late 1");
  EXPECT_PRED2(contains, findings[0].text, "rank 1 was late: it had not begun all_reduce #2");
  EXPECT_PRED2(contains, findings[0].text, "rank 0 gave up all_reduce #2 of group world at");
  EXPECT_PRED2(contains, findings[0].text, ", after 5.00 s");
}

TEST(Diagnosis, RankWithoutARingIsMissing) {
  auto ranks = run_of(4);
  ranks.pop_back();
  ranks.pop_back();
  for (Observed& rank : ranks) rank.call("barrier", 10);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "missing 2 3");
  EXPECT_EQ(findings[0].text,
            "ranks 2 and 3 have no ring: they have not started, or recorded in another host's "
            "folder; ranks 0 and 1 wait in barrier #2 of group world since 2026-01-02 03:04:15 UTC "
            "(90 s)");
}

TEST(Diagnosis, RankWithoutARingIsMissingWhenTheOthersHaveEnded) {
  auto ranks = run_of(3);
  ranks.erase(ranks.begin() + 1);
  const auto going_on = diagnosis_of(ranks);
  ASSERT_EQ(outline(going_on), "progress 0 2");
  EXPECT_PRED2(contains, going_on[0].text, "nobody is late; rank 1 has no ring");
  for (Observed& rank : ranks) rank.close(2);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "missing 1");
  EXPECT_FALSE(is_healthy(findings));
  EXPECT_EQ(findings[0].text,
            "rank 1 has no ring: it has not started, or recorded in another host's folder; all "
            "others of the run have ended");
}

// A transport that records nothing is not healthy for that.
TEST(Diagnosis, NothingIsSaidOfARunThatHasRecordedNothing) {
  std::vector<Observed> ranks = {Observed(0, 2), Observed(1, 2)};
  auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "unrecorded 0 1");
  EXPECT_FALSE(is_healthy(findings));
  EXPECT_PRED2(contains, findings[0].text, "nothing is recorded: ranks 0 and 1 have made no call");
  for (Observed& rank : ranks) rank.close(2);
  findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "unrecorded 0 1");
  EXPECT_PRED2(contains, findings[0].text, "ended before the first call");
  EXPECT_PRED2(contains, diagnosis_of({Observed(0, 3)})[0].text, "ranks 1 and 2 have no ring");
  ranks[1] = Observed(1, 2);
  ranks[1].process(ProcessState::kStopped);
  findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "stopped 1");
  EXPECT_PRED2(contains, findings[0].text, "it has recorded no call");
}

// mpirun kills all ranks when one has died; the others died waiting for it.
TEST(Diagnosis, OfRanksThatAllDiedTheOneOthersHadWaitedForComesFirst) {
  auto ranks = run_of(3);
  for (const int rank : {0, 2}) ranks[rank].call("all_reduce", 10);
  ranks[1].message("send", 0, 0, 30, 31);  // seen last
  for (Observed& rank : ranks) rank.process(ProcessState::kGone);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "died 1; died 0; died 2");
  EXPECT_PRED2(
      contains, findings[0].text,
      "ranks 0 and 2 had waited in all_reduce #2 of group world since 2026-01-02 03:04:15");
}

TEST(Diagnosis, CallThatAllHaveMadeAndThatDoesNotEndIsStuck) {
  auto ranks = run_of(2);
  for (Observed& rank : ranks) rank.call("barrier", 10);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "stuck 0 1");
  for (Observed& rank : ranks) rank.fail(11);
  EXPECT_EQ(outline(diagnosis_of(ranks)), "failed 0 1");
}

TEST(Diagnosis, FinishedRunIsHealthy) {
  auto ranks = run_of(3);
  for (Observed& rank : ranks) rank.close(2);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "finished 0 1 2");
  EXPECT_TRUE(is_healthy(findings));
  EXPECT_EQ(findings[0].text,
            "finished: ranks 0, 1 and 2 ended at 2026-01-02 03:04:07 UTC after 3 calls, none of "
            "which failed");
}

TEST(Diagnosis, RunThatGoesOnSaysHowFast) {
  auto ranks = run_of(2);
  for (Observed& rank : ranks) {
    for (int i = 0; i < 196; ++i) rank.call("all_reduce", 2 + i / 2.0, 2.1 + i / 2.0);
    rank.call("all_reduce", 99.9);
  }
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "progress 0 1");
  EXPECT_TRUE(is_healthy(findings));
  EXPECT_EQ(
      findings[0].text,
      "healthy: ranks 0 and 1 make 1.99 calls a second each, 396 so far, the last 0.10 s ago; "
      "nobody is late");
}

TEST(Diagnosis, RunThatIsStartingSaysWhichRanksAreMissing) {
  std::vector<Observed> ranks = {Observed(0, 4)};
  ranks[0].call("join", 99);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "progress 0");
  EXPECT_PRED2(contains, findings[0].text, "ranks 1, 2 and 3 have no ring: they have not started");
}

TEST(Diagnosis, ManyRanksAreCountedInsteadOfListed) {
  auto ranks = run_of(20);
  for (int rank = 1; rank < 20; ++rank) ranks[rank].call("barrier", 10);
  const auto findings = diagnosis_of(ranks);
  ASSERT_EQ(outline(findings), "late 0");
  EXPECT_PRED2(contains, findings[0].text, "ranks 1, 2, 3, 4, 5, 6 and 13 others wait in");
}

// The real thing: processes, their rings and their ends.
TEST(DiagnosisOfARun, NamesTheRankWhoseCallDiffers) {
  const harness::TemporaryFolder folder;
  RecordedRanks ranks(3, folder.path(), [](Communicator& world) {
    world.barrier()->wait();
    at::Tensor data = at::ones({3, 5});
    if (world.rank() == 2) {
      world.broadcast(data, 1)->wait();
    } else {
      world.all_reduce(data)->wait();
    }
  });
  ranks.join();
  const auto findings = diagnose(observe_ranks(folder.path()));
  ASSERT_EQ(findings[0].kind, Kind::kMismatch) << findings[0].text;
  EXPECT_EQ(findings[0].text,
            "the ranks differ in call #3 of group world: rank 2 calls broadcast(Float [3, 5], root "
            "1) and ranks 0 and 1 call all_reduce(Float [3, 5], sum)");
}

TEST(DiagnosisOfARun, NamesTheRankThatNeverCallsWhileItLives) {
  const harness::TemporaryFolder folder;
  RecordedRanks ranks(3, folder.path(), [](Communicator& world) {
    const auto part = world.split(world.rank() == 0 ? 1 : 0, 0, "part");
    if (world.rank() == 2) pause();  // its peer in "part" waits for it, and rank 0 for its peer
    if (world.rank() == 1) part->barrier()->wait();
    world.all_reduce(at::ones({4}))->wait();
  });
  std::vector<Finding> findings;
  std::string text;
  do {  // until both have come to where they wait
    try {
      findings = diagnose(observe_ranks(folder.path()), {.late_after = std::chrono::seconds(0)});
    } catch (const ConfigError&) {  // no ring yet
    }
    text.clear();
    for (const Finding& finding : findings) text += finding.text + "\n";
  } while (!contains(text, "rank 1 waits in barrier #2 of group part since") ||
           !contains(text, "rank 0 waits in all_reduce #3 of group world since"));
  // Whichever wait began first is told with the culprit.
  EXPECT_TRUE(outline(findings).starts_with("late 2; waiting ")) << text;
  EXPECT_EQ(findings.size(), 2u) << text;
  EXPECT_PRED2(contains, findings[0].text, "rank 2 is late: it has not begun ");
}

TEST(DiagnosisOfARun, NamesTheRankThatLeft) {
  const harness::TemporaryFolder folder;
  RecordedRanks ranks(2, folder.path(), [](Communicator& world) {
    if (world.rank() == 1) throw Error("not a word to the others");
    world.barrier()->wait();
  });
  ranks.join();
  EXPECT_EQ(outline(diagnose(observe_ranks(folder.path()))), "left 1");
}

TEST(DiagnosisOfARun, NamesTheRankThatWasKilled) {
  const harness::TemporaryFolder folder;
  RecordedRanks ranks(2, folder.path(), [](Communicator& world) {
    if (world.rank() == 0) std::raise(SIGKILL);
    world.barrier()->wait();
  });
  ranks.join();
  EXPECT_EQ(outline(diagnose(observe_ranks(folder.path()))), "died 0");
}

// A crash of the machine may leave anything behind the header.
TEST(Diagnosis, DamagedRingsAreRefusedOrDiagnosed) {
  Recorder recorder({.world_size = 2, .num_records = 64});
  const int group = recorder.add_group("world", Ranks{0, 1});
  for (int i = 0; i < 60; ++i) {
    const bool is_message = i % 3 == 0;
    const auto entry = recorder.issue(group, {.operation = is_message ? "send" : "barrier",
                                              .elements = 0,
                                              .reduce_op = 0,
                                              .peer = 1,
                                              .is_point_to_point = is_message});
    if (i < 50) entry.finish(i % 7 != 0);
  }
  const std::string whole(reinterpret_cast<const char*>(recorder.bytes().data()),
                          recorder.bytes().size());
  std::mt19937 random(1);
  int num_diagnosed = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 200; ++i) {
      // The header's changing part, the group, or the records.
      const size_t place = std::array<size_t, 3>{
          344 + random() % 8, 4096 + random() % 128,
          bytes.size() - 1 - random() % (64 * 128)}[i == 0 ? random() % 3 : 2];
      bytes[place] = static_cast<char>(random());
    }
    try {
      const Ring ring = parse_ring(std::as_bytes(std::span(bytes)), "the ring");
      EXPECT_FALSE(diagnose({{ring, ProcessState::kRunning}}).empty());
      for (const Record& record : ring.records) EXPECT_NE(to_string(record), "");
      ++num_diagnosed;
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(num_diagnosed, 100);
}

// Rings that somebody made: every field may say anything, under right checksums. Seeded.
TEST(Diagnosis, HostileRingsAreRefusedOrDiagnosed) {
  constexpr int kRecords = 64;
  Recorder recorder({.rank = 1, .world_size = 3, .num_records = kRecords});
  const int world = recorder.add_group("world", Ranks{0, 1, 2});
  const int pair = recorder.add_group("pair", Ranks{1, 2});
  for (int i = 0; i < kRecords; ++i) {
    const bool is_message = i % 3 == 0;
    const auto entry =
        recorder.issue(i % 2 == 0 ? world : pair, {.operation = is_message ? "send" : "barrier",
                                                   .peer = i % 3 - 1,
                                                   .tag = i % 5,
                                                   .is_point_to_point = is_message});
    if (i < 40) entry.finish(i % 7 != 0);
  }
  const std::string whole(reinterpret_cast<const char*>(recorder.bytes().data()),
                          recorder.bytes().size());
  const std::array<int64_t, 12> extremes = {0,
                                            1,
                                            -1,
                                            2,
                                            3,
                                            255,
                                            256,
                                            1 << 20,
                                            0x7fffffff,
                                            -0x80000000LL,
                                            std::numeric_limits<int64_t>::max(),
                                            std::numeric_limits<int64_t>::min()};
  std::mt19937 random(7);
  int num_diagnosed = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    for (unsigned i = 0; i <= random() % 20; ++i) {
      const size_t records = bytes.size() - kRecords * 128;
      const std::array<size_t, 4> places = {
          8 + random() % 400 / 4 * 4, 4096 + random() % 512 / 4 * 4,
          4096 + 256 * 128 + random() % 32 / 4 * 4, records + random() % (kRecords * 128) / 4 * 4};
      const int64_t value =
          random() % 4 == 0 ? static_cast<int64_t>(random()) : extremes[random() % extremes.size()];
      const size_t width = std::array<size_t, 3>{1, 4, 8}[random() % 3];
      const size_t place = places[random() % 8 == 0 ? 0 : 1 + random() % 3];
      std::memcpy(bytes.data() + place, &value, std::min(width, bytes.size() - place));
    }
    const std::string sum = checksum(std::as_bytes(std::span(bytes)).first(320));
    std::memcpy(bytes.data() + 320, sum.data(), sum.size());
    try {
      const Ring ring = parse_ring(std::as_bytes(std::span(bytes)), "the ring");
      Ring other = parse_ring(std::as_bytes(std::span(whole)), "another");
      other.rank = 2;
      const ProcessState state = static_cast<ProcessState>(random() % 4);
      EXPECT_FALSE(diagnose({{ring, state}, {other, ProcessState::kRunning}}).empty());
      for (const Record& record : ring.records) EXPECT_NE(to_string(record), "");
      EXPECT_LE(ring.records.size(), size_t{kRecords});
      ++num_diagnosed;
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(num_diagnosed, 300);
}

// As many records, groups and channels as a reader takes in: each is looked at a few times.
TEST(Diagnosis, LargeRingsTakeNoMoreThanTheirSize) {
  std::vector<Observed> ranks = {Observed(0, 1 << 18), Observed(1, 1 << 18)};
  for (Observed& rank : ranks) {
    for (int i = 0; i < 4000; ++i) rank.add_group("group", {0, 1, i});
    for (int i = 0; i < 60000; ++i) {
      rank.message("recv" + std::to_string(i % 9), kAnySource, i, 1).group = i % 4000;
    }
    for (int i = 0; i < 60000; ++i) rank.call("barrier", 1, 2, i % 4000);
  }
  const auto findings = diagnosis_of(ranks);
  EXPECT_LT(findings.size(), 1000u);
}

TEST(Diagnosis, CallIsWrittenWithItsTensorAndPeers) {
  Observed rank(0, 2);
  EXPECT_EQ(to_string(rank.call("all_reduce", 1)), "all_reduce(Float [4, 8], sum)");
  Record& gather = rank.call("all_gather", 1);
  gather.elements = 64;
  EXPECT_EQ(to_string(gather), "all_gather(Float [4, 8], 64 elements)");
  gather.num_dims = 6;
  EXPECT_EQ(to_string(gather), "all_gather(Float [4, 8, ...], 64 elements)");
  EXPECT_EQ(to_string(rank.message("recv", kAnySource, 3, 1)), "recv(any source, tag 3)");
  EXPECT_EQ(to_string(rank.message("send", 1, 0, 1)), "send(peer 1, tag 0)");
  EXPECT_EQ(to_string(rank.message("send", 1, kSizedTag | 5, 1)), "send(peer 1, tag 5)");
}

}  // namespace
}  // namespace trireme::comm
