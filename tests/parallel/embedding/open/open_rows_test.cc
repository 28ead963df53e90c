#include "trireme/parallel/embedding/open/open_rows.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

struct PlainEntry {
  int64_t last_use = 0;
  int64_t uses = 0;
  bool has_row = false;
};

// Keys come and go for thousands of steps, so that the sweep runs many times.
TEST(OpenRows, AgreeWithAPlainMap) {
  std::mt19937_64 engine(2);
  for (const int64_t expire_steps : {0, 1, 5}) {
    for (const int64_t min_uses : {1, 3}) {
      OpenRows rows({.expire_steps = expire_steps, .min_uses = min_uses});
      std::map<int64_t, PlainEntry> expected;
      for (int64_t step = 1; step <= 1000; ++step) {
        const auto is_there = [&](int64_t key, int64_t num_steps) {
          const auto found = expected.find(key);
          return found != expected.end() &&
                 (expire_steps == 0 || num_steps - found->second.last_use < expire_steps);
        };
        std::set<int64_t> keys;
        for (int i = 0; i < 9; ++i) {
          keys.insert(static_cast<int64_t>(engine() % 90) + 20 * step * (i % 2));
        }
        for (const int64_t key : keys) {
          const bool was_there = is_there(key, step - 1);
          ASSERT_EQ(rows.find(key, step - 1) != OpenRows::kNone,
                    was_there && expected[key].has_row);
          if (!was_there) expected[key] = {};
          PlainEntry& entry = expected[key];
          const bool had_row = entry.has_row;
          entry = {step, entry.uses + 1, had_row || entry.uses + 1 >= min_uses};
          const auto [slot, is_new] = rows.use(key, step);
          ASSERT_EQ(slot != OpenRows::kNone, entry.has_row);
          ASSERT_EQ(is_new, entry.has_row && !had_row);
          ASSERT_EQ(rows.find(key, step), slot);
        }
        if (step % 2 == 0) rows.expire(step);  // otherwise what has expired is passed over
        if (step % 100 != 0) continue;
        OpenKeys plain_rows, plain_waiting;
        for (const auto& [key, entry] : expected) {
          if (!is_there(key, step)) continue;
          OpenKeys& list = entry.has_row ? plain_rows : plain_waiting;
          list.keys.push_back(key);
          list.last_uses.push_back(entry.last_use);
          list.numbers.push_back(entry.uses);
        }
        const OpenKeys own = rows.rows(step), waiting = rows.waiting(step);
        EXPECT_EQ(own.keys, plain_rows.keys);
        EXPECT_EQ(own.last_uses, plain_rows.last_uses);
        EXPECT_EQ(std::set(own.numbers.begin(), own.numbers.end()).size(), own.keys.size());
        EXPECT_EQ(waiting.keys, plain_waiting.keys);
        EXPECT_EQ(waiting.last_uses, plain_waiting.last_uses);
        EXPECT_EQ(waiting.numbers, plain_waiting.numbers);
      }
      if (expire_steps > 0) EXPECT_LT(rows.num_slots(), 1500);
    }
  }
}

TEST(OpenRows, UseSlotsOfExpiredRowsAgain) {
  OpenRows rows({.table = "t", .expire_steps = 2});
  for (int64_t step = 1; step <= 9; ++step) {
    EXPECT_TRUE(rows.use(step, step).is_new);
    rows.expire(step);
    EXPECT_EQ(rows.counts().rows, std::min<int64_t>(step, 2));
  }
  EXPECT_LE(rows.num_slots(), 3);
  EXPECT_EQ(rows.counts().begun, 9);
  EXPECT_EQ(rows.counts().expired, 7);
}

TEST(OpenRows, EvictThoseThatWereUsedLongestAgo) {
  OpenRows rows({});
  for (const int64_t key : {-4, 1, 5}) rows.use(key, 1);
  rows.use(1, 2);
  rows.use(3, 2);
  EXPECT_EQ(rows.first_to_evict(3), (std::vector<EvictionRank>{{0, 1, -4}, {0, 1, 5}, {0, 2, 1}}));
  EXPECT_EQ(rows.first_to_evict(9).size(), 4U);
  rows.evict(2);
  EXPECT_EQ(rows.rows(2).keys, (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(rows.use(5, 3).is_new) << "it starts anew";
  EXPECT_EQ(rows.num_slots(), 4);
  EXPECT_EQ(rows.counts().evicted, 2);

  OpenRows loaded({});
  loaded.load({{-7, 2, 6}, {5, 4, 4}, {}}, {{9}, {3}, {1}});
  EXPECT_EQ(loaded.first_to_evict(9),
            (std::vector<EvictionRank>{{0, 4, 2}, {0, 4, 6}, {0, 5, -7}}));
  EXPECT_EQ(loaded.use(6, 6).slot, 2);
  loaded.evict(9);
  EXPECT_EQ(loaded.counts().rows, 0);
  EXPECT_TRUE(loaded.first_to_evict(1).empty());
  EXPECT_EQ(loaded.waiting(6).keys, std::vector<int64_t>{9});
}

TEST(OpenRows, EvictThoseThatWereUsedLeastOfLate) {
  OpenRows rows({.evicts = Evicts::kRarest, .halve_steps = 4});
  for (const int64_t key : {-4, 1, 5}) rows.use(key, 1);
  for (const int64_t key : {-4, 5}) rows.use(key, 2);
  rows.use(-4, 3);
  rows.use(1, 4);
  const OpenKeys listed = rows.rows(4);
  EXPECT_EQ(listed.keys, (std::vector<int64_t>{-4, 1, 5}));
  EXPECT_EQ(listed.last_uses, (std::vector<int64_t>{3, 4, 2}));
  EXPECT_EQ(listed.uses, (std::vector<float>{3, 1.5F, 2}));
  const auto order = [](OpenRows& of) {
    std::vector<int64_t> keys;
    for (const EvictionRank& rank : of.first_to_evict(9)) keys.push_back(rank.key);
    return keys;
  };
  EXPECT_EQ(order(rows), (std::vector<int64_t>{5, -4, 1})) << "5 has 1 now, -4 as many as 1";
  OpenRows loaded({.evicts = Evicts::kRarest, .halve_steps = 4});
  loaded.load(listed, {});
  EXPECT_EQ(order(loaded), order(rows));
  for (OpenRows* const each : {&rows, &loaded}) {
    EXPECT_TRUE(each->use(9, 5).is_new);
    EXPECT_EQ(order(*each), (std::vector<int64_t>{5, 9, -4, 1}));
    each->evict(1);
    EXPECT_TRUE(each->use(5, 8).is_new) << "it starts anew";
    EXPECT_EQ(order(*each), (std::vector<int64_t>{9, -4, 1, 5}));
    EXPECT_EQ(each->rows(8).uses, (std::vector<float>{3, 1.5F, 1, 1}));
  }
  OpenRows without({.evicts = Evicts::kRarest});
  without.load({.keys = {3, 4}, .last_uses = {2, 1}}, {});
  EXPECT_EQ(order(without), (std::vector<int64_t>{4, 3}));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
