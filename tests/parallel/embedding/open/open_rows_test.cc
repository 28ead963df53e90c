#include "trireme/parallel/embedding/open/open_rows.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

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

TEST(OpenRows, DropWhatHasExpiredBeforeTheyRefuse) {
  OpenRows rows({.table = "t", .max_rows = 3, .expire_steps = 2});
  for (int64_t step = 1; step <= 9; ++step) {
    EXPECT_TRUE(rows.use(step, step).is_new);
  }
  EXPECT_LE(rows.num_slots(), 3);
  try {
    rows.use(21, 9);
    FAIL() << "a row too many";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "embedding table \"t\" has 3 rows on this rank, as many as it may; allow more, "
                 "drop rows after fewer steps, require more uses of an id or use more ranks");
  }
  EXPECT_THROW(rows.load({{1, 2, 3, 4}, {1, 1, 1, 1}, {}}, {}), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel::inline internal
