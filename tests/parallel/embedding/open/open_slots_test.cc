#include "trireme/parallel/embedding/open/open_slots.h"

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::parallel::inline internal {
namespace {

// Rows of one number, which begins with the key.
struct Numbers {
  RowImage image() {
    return {
        .num_bytes = sizeof(int64_t),
        .save = [this](int64_t slot, std::byte* to) { std::memcpy(to, &at(slot), 8); },
        .load = [this](int64_t slot, const std::byte* from) { std::memcpy(&at(slot), from, 8); },
        .initial = [](int64_t, std::byte* to) { std::memset(to, 0, 8); }};
  }
  int64_t& at(int64_t slot) {
    if (slot >= std::ssize(slots)) slots.resize(static_cast<size_t>(slot) + 1);
    return slots[static_cast<size_t>(slot)];
  }
  std::vector<int64_t> slots;
};

class OpenSlotsTest : public testing::Test {
 protected:
  std::unique_ptr<OpenSlots> make(const OpenRowsOptions& rows, int64_t num_slots) {
    OpenSlotsOptions options{
        .rows = rows, .begin_row = [this](int64_t key, int64_t slot) { numbers_.at(slot) = key; }};
    if (num_slots > 0) {
      options.disk = std::make_shared<DiskRows>(DiskRowsOptions{.table = "t",
                                                                .num_rows = 1,
                                                                .num_slots = num_slots,
                                                                .folder = folder_.path(),
                                                                .grows = true},
                                                numbers_.image());
    }
    return std::make_unique<OpenSlots>(std::move(options));
  }
  harness::TemporaryFolder folder_;
  Numbers numbers_;
};

// Keys get rows, lose them and get them again, in few slots and in many.
TEST_F(OpenSlotsTest, HaveEachKeysRowWhereverItIs) {
  harness::Draw draw(2);
  for (const int64_t num_slots : {0, 12, 100}) {
    for (const int64_t expire_steps : {0, 4}) {
      const auto slots = make({.expire_steps = expire_steps, .min_uses = 2}, num_slots);
      std::map<int64_t, int64_t> expected;  // of keys with rows
      for (int64_t step = 1; step <= 300; ++step) {
        std::set<int64_t> drawn;
        while (drawn.size() < 10) drawn.insert(draw.below<int64_t>(draw.below(2) == 0 ? 9 : 200));
        const std::vector<int64_t> keys(drawn.begin(), drawn.end());
        slots->prefetch(keys, step - 1);
        std::vector<int64_t> found;
        slots->release();
        slots->fetch(keys, step - 1, found);
        std::erase_if(expected, [&](const auto& each) {
          return slots->rows().find(each.first, step - 1) == OpenRows::kNone;
        });
        EXPECT_EQ(std::set(found.begin(), found.end()).size(), keys.size());
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto row = expected.find(keys[i]);
          ASSERT_EQ(numbers_.at(found[i]), row == expected.end() ? keys[i] : row->second);
        }
        slots->release();
        slots->fetch_used(keys, step, found);
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto row = expected.find(keys[i]);
          ASSERT_EQ(numbers_.at(found[i]), row == expected.end() ? keys[i] : row->second);
          numbers_.at(found[i]) += 1000 * step;
          if (slots->disk() != nullptr) slots->disk()->mark_changed(found[i]);
          if (slots->rows().find(keys[i], step) != OpenRows::kNone) {
            expected[keys[i]] = numbers_.at(found[i]);
          }
        }
        if (step % 3 == 0) slots->rows().expire(step);
        if (step % 5 == 0) {
          const int64_t before = slots->rows().counts().rows;
          slots->rows().evict(before / 10);
        }
        std::erase_if(expected, [&](const auto& each) {
          return slots->rows().find(each.first, step) == OpenRows::kNone;
        });
      }
      EXPECT_GE(expected.size(), 5U);
      if (num_slots == 12) EXPECT_GT(slots->disk()->num_missed(), 0);
    }
  }
}

}  // namespace
}  // namespace trireme::parallel::inline internal
