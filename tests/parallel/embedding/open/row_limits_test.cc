#include "trireme/parallel/embedding/open/open_rows.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

using harness::Draw;

// Keys below 40, each on one rank, with the last step that used it.
std::vector<std::pair<int64_t, int64_t>> draw_uses(Draw& draw) {
  std::vector<std::pair<int64_t, int64_t>> uses;  // (step, key)
  for (int64_t key = -20; key < 20; ++key) uses.emplace_back(1 + draw.below(5), key);
  std::ranges::sort(uses);
  uses.resize(static_cast<size_t>(draw.below(41)));
  return uses;
}

TEST(RowLimits, KeepTheRowsThatWereUsedLastOfAllRanks) {
  Draw draw(3);
  for (int round = 0; round < 60; ++round) {
    const int world = 1 + round % 4;
    const auto one = draw_uses(draw), other = draw_uses(draw);
    const int64_t max_one = 1 + draw.below(30), max_other = 1 + draw.below(30);
    const bool is_replicated = round % 5 == 0;
    const auto kept = [](const std::vector<std::pair<int64_t, int64_t>>& uses, int64_t most) {
      std::set<int64_t> keys;
      for (size_t i = 0; i < uses.size(); ++i) {
        if (std::ssize(uses) - static_cast<int64_t>(i) <= most) keys.insert(uses[i].second);
      }
      return keys;
    };
    const std::set<int64_t> kept_one = kept(one, max_one), kept_other = kept(other, max_other);
    const int64_t holders = 1 + draw.below(world);  // the others have no rows
    harness::run_ranks(world, [&](comm::Communicator& group) {
      OpenRows first({}), second({});
      std::set<int64_t> own;
      for (const auto& [step, key] : one) {
        if ((key + 20) % holders != group.rank()) continue;
        first.use(key, step);
        if (kept_one.contains(key)) own.insert(key);
      }
      for (const auto& [step, key] : other) {
        if (is_replicated || (key + 20) / 10 % world == group.rank()) second.use(key, step);
      }
      const std::vector<LimitedRows> tables = {{.rows = first, .table = "one", .max_rows = max_one},
                                               {.rows = second,
                                                .table = "other",
                                                .max_rows = max_other,
                                                .is_replicated = is_replicated}};
      keep_limits(tables, world == 1 && round % 2 == 0 ? nullptr : &group);
      const std::vector<int64_t> keys = first.rows(9).keys;
      EXPECT_EQ(std::set(keys.begin(), keys.end()), own);
      for (const int64_t key : second.rows(9).keys) EXPECT_TRUE(kept_other.contains(key));
      if (is_replicated) EXPECT_EQ(second.counts().rows, std::ssize(kept_other));
    });
  }
}

TEST(RowLimits, KeepTheRowsThatWereUsedMostOfAllRanks) {
  Draw draw(4);
  for (int round = 0; round < 40; ++round) {
    const int world = 1 + round % 4;
    const OpenRowsOptions options{.evicts = Evicts::kRarest, .halve_steps = draw.below<int64_t>(3)};
    std::vector<std::pair<int64_t, int64_t>> uses;  // (step, key)
    for (int64_t step = 1; step <= 6; ++step) {
      for (int64_t key = 0; key < 30; ++key) {
        if (draw.below(3) == 0) uses.emplace_back(step, key);
      }
    }
    const int64_t max_rows = 1 + draw.below(30), holders = 1 + draw.below(world);
    OpenRows one(options);
    for (const auto& [step, key] : uses) one.use(key, step);
    one.evict(one.counts().rows - max_rows);
    harness::run_ranks(world, [&](comm::Communicator& group) {
      OpenRows own(options);
      for (const auto& [step, key] : uses) {
        if (key * key % holders == group.rank()) own.use(key, step);
      }
      const std::vector<LimitedRows> tables = {
          {.rows = own, .table = "t", .max_rows = max_rows, .counts_uses = true}};
      keep_limits(tables, &group);
      std::vector<int64_t> expected;
      for (const int64_t key : one.rows(6).keys) {
        if (key * key % holders == group.rank()) expected.push_back(key);
      }
      EXPECT_EQ(own.rows(6).keys, expected);
    });
  }
}

TEST(RowLimits, RefuseOnEveryRank) {
  harness::run_ranks(3, [&](comm::Communicator& group) {
    OpenRows rows({});
    if (group.rank() == 1) {
      for (const int64_t key : {1, 2, 3, 4}) rows.use(key, 1);
    }
    const std::vector<LimitedRows> tables = {
        {.rows = rows, .table = "t", .max_rows = 3, .evicts = false}};
    EXPECT_EQ(harness::message_of<ConfigError>([&] { keep_limits(tables, &group); }),
              "embedding table \"t\" has 4 rows; expected at most 3 (open_max_rows); allow more, "
              "evict old ones, drop rows after fewer steps or require more uses of an id");
    EXPECT_EQ(rows.counts().rows, group.rank() == 1 ? 4 : 0);
  });
}

}  // namespace
}  // namespace trireme::parallel::inline internal
