#include "trireme/parallel/learner/rounds.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

TEST(Rounds, EveryFragmentIsExchangedOnceInARound) {
  for (const int64_t fragments : {1, 2, 3, 6}) {
    const Rounds rounds({.every = 12, .fragments = fragments});
    std::map<int, int> begun;
    for (int64_t step = 1; step <= 24; ++step) {
      if (const auto fragment = rounds.beginning(step)) {
        ++begun[*fragment];
        EXPECT_EQ(step % (12 / fragments), 0) << step;
        EXPECT_EQ(rounds.ends(step), *fragment == fragments - 1) << step;
      }
    }
    ASSERT_EQ(static_cast<int64_t>(begun.size()), fragments);
    for (const auto& [fragment, count] : begun) EXPECT_EQ(count, 2) << fragment;
  }
}

TEST(Rounds, WhatIsUnderWayArrivesAfterTheDelay) {
  const Rounds rounds({.every = 8, .fragments = 2, .delay = 3, .begin = 5});
  for (int64_t step = 1; step <= 8; ++step) EXPECT_FALSE(rounds.beginning(step)) << step;
  EXPECT_EQ(rounds.beginning(9), 0);
  for (const int64_t step : {9, 10, 11}) {
    EXPECT_EQ(rounds.under_way(step), 0) << step;
    EXPECT_FALSE(rounds.arriving(step)) << step;
  }
  EXPECT_EQ(rounds.arriving(12), 0);
  EXPECT_FALSE(rounds.under_way(12));
  EXPECT_EQ(rounds.beginning(13), 1);
  EXPECT_TRUE(rounds.ends(13));
}

TEST(Rounds, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const Rounds::Options& options) {
    return harness::message_of<ConfigError>([&] { Rounds{options}; });
  };
  EXPECT_EQ(refusal({.every = 10, .fragments = 3}),
            "outer.every is 10 and outer.fragments 3; each fragment is exchanged once in as many "
            "steps: set outer.every to a multiple of outer.fragments, such as 9");
  EXPECT_NE(refusal({.every = 10, .fragments = 2, .delay = 5}).find("less than the 5 steps"),
            std::string::npos);
}

TEST(Rounds, FragmentsAreNeighboursOfAboutEqualSize) {
  const std::vector<int64_t> sizes(40, 10);
  const std::vector<int> fragments = fragments_of(sizes, 4);
  EXPECT_TRUE(std::ranges::is_sorted(fragments));
  for (int fragment = 0; fragment < 4; ++fragment) {
    EXPECT_EQ(std::ranges::count(fragments, fragment), 10);
  }
  EXPECT_EQ(fragments_of(std::vector<int64_t>{1, 1000, 1}, 2), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(fragments_of(std::vector<int64_t>{0, 0}, 3), (std::vector<int>{0, 0}));
  EXPECT_TRUE(fragments_of({}, 2).empty());
}

}  // namespace
}  // namespace trireme::parallel
