#include "trireme/launch/journal/first_errors.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

constexpr FirstErrors::Clock::time_point kNow(1h);
const std::string kLost = "trireme: all_reduce #5 of group world (4 ranks), after 1 s: rank 2 died";

TEST(FirstErrors, RankZeroIsShownAtOnceAndOthersAreNot) {
  FirstErrors errors;
  EXPECT_EQ(errors.add_line(0, LogStream::kOut, "step 1", kNow), Lines{"step 1"});
  EXPECT_EQ(errors.add_line(0, LogStream::kErr, "WARNING: x", kNow), Lines{"WARNING: x"});
  EXPECT_EQ(errors.add_line(1, LogStream::kOut, "step 1", kNow), Lines{});
  EXPECT_EQ(errors.add_line(1, LogStream::kErr, "WARNING: x", kNow), Lines{});
  EXPECT_EQ(errors.finish(), Lines{});
}

TEST(FirstErrors, EqualErrorsOfSeveralRanksAreOneLine) {
  FirstErrors errors;
  for (const int rank : {3, 1, 2, 5}) {
    EXPECT_EQ(errors.add_line(rank, LogStream::kErr, "ERROR: no such file", kNow + rank * 10ms),
              Lines{});
  }
  errors.add_line(4, LogStream::kErr, "ERROR: other", kNow + 60ms);
  EXPECT_EQ(errors.poll(kNow + 200ms), Lines{});
  EXPECT_EQ(errors.poll(kNow + 340ms), Lines{"ranks 1-3 and 5: ERROR: no such file"});
  EXPECT_EQ(errors.poll(kNow + 1s), Lines{"rank 4: ERROR: other"});
  EXPECT_EQ(errors.poll(kNow + 60s), Lines{});
}

TEST(FirstErrors, ARanksSecondErrorIsOnlyShownIfItDiesOfIt) {
  FirstErrors errors;
  errors.add_line(1, LogStream::kErr, "ERROR: a", kNow);
  EXPECT_EQ(errors.poll(kNow + 1s), Lines{"rank 1: ERROR: a"});
  errors.add_line(1, LogStream::kErr, "ERROR: b", kNow + 2s);
  errors.add_line(1, LogStream::kErr, "ERROR: c", kNow + 2s);
  EXPECT_EQ(errors.poll(kNow + 4s), Lines{});
  errors.add_exit(1, "rank 1 exited with code 1", false, kNow + 5s);
  EXPECT_EQ(errors.poll(kNow + 6s), (Lines{"rank 1: ERROR: c", "rank 1: exited with code 1"}));
}

TEST(FirstErrors, ATracebackStaysTogether) {
  FirstErrors errors;
  for (const char* line : {"Traceback (most recent call last):", "  File \"a.py\", line 1",
                           "    f()", "KeyError: 'x'", "bye"}) {
    errors.add_line(2, LogStream::kErr, line, kNow);
  }
  errors.add_exit(2, "rank 2 exited with code 1", false, kNow);
  EXPECT_EQ(errors.finish(),
            (Lines{"rank 2: Traceback (most recent call last):", "rank 2:   File \"a.py\", line 1",
                   "rank 2:     f()", "rank 2: KeyError: 'x'", "rank 2: exited with code 1"}));
}

TEST(FirstErrors, TheMiddleOfALongTracebackIsLeftOut) {
  FirstErrors errors;
  errors.add_line(1, LogStream::kErr, "Traceback (most recent call last):", kNow);
  for (int i = 0; i < 10'000; ++i) {
    errors.add_line(1, LogStream::kErr, "  " + std::to_string(i), kNow);
  }
  errors.add_line(1, LogStream::kErr, "RecursionError: x", kNow);
  const Lines lines = errors.finish();
  EXPECT_EQ(lines.size(), FirstErrors::kMaxErrorLines);
  EXPECT_EQ(lines[0], "rank 1: Traceback (most recent call last):");
  EXPECT_EQ(lines[10], "rank 1: ...");
  EXPECT_EQ(lines.back(), "rank 1: RecursionError: x");
}

TEST(FirstErrors, TheCauseComesBeforeItsConsequencesHoweverTheyArrive) {
  for (const bool cause_first : {false, true}) {
    FirstErrors errors;
    Lines shown;
    const auto show = [&](const Lines& lines) {
      shown.insert(shown.end(), lines.begin(), lines.end());
    };
    const auto die = [&] {
      show(errors.add_exit(2, "rank 2 was killed by signal 9", false, kNow));
    };
    if (cause_first) die();
    for (const int rank : {0, 1, 3}) {
      show(errors.add_line(rank, LogStream::kErr, kLost, kNow));
      show(errors.add_exit(rank, "rank 0: lost rank 2", true, kNow + 1s));
    }
    if (!cause_first) die();
    show(errors.poll(kNow + 2s));
    show(errors.finish());
    EXPECT_EQ(shown, (Lines{"rank 2: killed by signal 9",
                            "ranks 0-1 and 3: stopped because a peer was lost"}));
  }
}

TEST(FirstErrors, WithoutACauseTheFirstLostPeerIsShown) {
  FirstErrors errors;
  errors.add_exit(3, "rank 3: " + kLost, true, kNow);
  errors.add_exit(1, "rank 1: " + kLost, true, kNow);
  EXPECT_EQ(errors.poll(kNow + 5s), Lines{});
  EXPECT_EQ(errors.poll(kNow + 20s),
            (Lines{"rank 3: " + kLost, "rank 1: stopped because a peer was lost"}));
}

// PyTorch's programs end with code 1 when a peer is lost.
TEST(FirstErrors, AnExitFollowsFromALostPeerIfItsLastErrorSaysSo) {
  FirstErrors errors;
  errors.add_line(1, LogStream::kErr, "RuntimeError: Connection closed by peer", kNow);
  errors.add_exit(1, "rank 1 exited with code 1", false, kNow);
  errors.add_exit(0, "rank 0 was killed by signal 11", false, kNow + 1s);
  EXPECT_EQ(errors.finish(),
            (Lines{"rank 0: killed by signal 11", "rank 1: stopped because a peer was lost"}));
}

TEST(FirstErrors, PyTorchsRankPrefixDoesNotTellErrorsApart) {
  FirstErrors errors;
  for (const int rank : {1, 2}) {
    errors.add_line(rank, LogStream::kErr, "[rank" + std::to_string(rank) + "]: KeyError: 'x'",
                    kNow);
  }
  EXPECT_EQ(errors.finish(), Lines{"ranks 1-2: KeyError: 'x'"});
}

TEST(FirstErrors, AThousandDifferentErrorsAreFewLines) {
  FirstErrors errors;
  for (int rank = 0; rank < 1000; ++rank) {
    errors.add_line(rank, LogStream::kErr, "ERROR: file " + std::to_string(rank), kNow);
  }
  const Lines lines = errors.finish();
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_EQ(lines[0], "rank 0: ERROR: file 0");
  EXPECT_EQ(lines[20], "ranks 20-999: other errors, which are in the logs");
}

TEST(FirstErrors, FinishBeginsAnew) {
  FirstErrors errors;
  for (int epoch = 0; epoch < 2; ++epoch) {
    errors.add_line(1, LogStream::kErr, "ERROR: a", kNow);
    EXPECT_EQ(errors.finish(), Lines{"rank 1: ERROR: a"});
  }
}

TEST(FirstErrors, RanksAreListedShortly) {
  EXPECT_EQ(ranks_in_words({3}), "rank 3");
  EXPECT_EQ(ranks_in_words({0, 1}), "ranks 0-1");
  EXPECT_EQ(ranks_in_words({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5 and 7-8");
}

}  // namespace
}  // namespace trireme::launch
