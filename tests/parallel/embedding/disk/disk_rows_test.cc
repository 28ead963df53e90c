#include "trireme/parallel/embedding/disk/disk_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRows = 300;

// Rows of one number, which is first that of the row.
struct Numbers {
  explicit Numbers(int64_t num_slots) : slots(static_cast<size_t>(num_slots)) {}
  RowImage image() {
    return {
        .num_bytes = sizeof(int64_t),
        .save = [this](int64_t slot,
                       std::byte* to) { std::memcpy(to, &slots[static_cast<size_t>(slot)], 8); },
        .load =
            [this](int64_t slot, const std::byte* from) {
              std::memcpy(&slots[static_cast<size_t>(slot)], from, 8);
            },
        .initial = [](int64_t row, std::byte* to) { std::memcpy(to, &row, 8); }};
  }
  std::vector<int64_t> slots;
};

TEST(DiskRows, HasTheValuesOfMemoryThroughAnyUses) {
  const harness::TemporaryFolder folder;
  std::mt19937_64 engine(2);
  for (const int64_t num_slots : {30, 100, 299}) {
    Numbers numbers(num_slots);
    DiskRows rows(
        {.table = "t", .num_rows = kRows, .num_slots = num_slots, .folder = folder.path()},
        numbers.image());
    std::vector<int64_t> expected(kRows);
    for (int64_t row = 0; row < kRows; ++row) expected[static_cast<size_t>(row)] = row;
    for (int batch = 0; batch < 400; ++batch) {
      std::vector<int64_t> wanted, slots;
      for (int64_t row = 0; row < kRows && std::ssize(wanted) < 30; ++row) {
        if (engine() % 12 == 0) wanted.push_back(row);
      }
      rows.prefetch(wanted);
      rows.release();
      rows.fetch(wanted, slots);
      ASSERT_EQ(slots.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        int64_t& value = numbers.slots[static_cast<size_t>(slots[i])];
        ASSERT_EQ(value, expected[static_cast<size_t>(wanted[i])]);
        if (engine() % 2 == 0) continue;
        value = expected[static_cast<size_t>(wanted[i])] = static_cast<int64_t>(engine());
        rows.mark_changed(slots[i]);
      }
      const auto other = static_cast<int64_t>(engine() % kRows);
      const int64_t end = std::min(other + 5, kRows);
      std::vector<int64_t> values(static_cast<size_t>(end - other)), read(values.size());
      std::iota(read.begin(), read.end(), other);
      constexpr DiskRows::Part kWhole{0, sizeof(int64_t)};
      rows.read(read, kWhole, reinterpret_cast<std::byte*>(values.data()));
      const auto first = expected.begin() + other;
      ASSERT_EQ(values, std::vector<int64_t>(first, first + (end - other)));
      for (int64_t& value : values) value += batch;
      std::ranges::copy(values, first);
      rows.write(other, kWhole, std::as_bytes(std::span(values)));
    }
    EXPECT_GT(rows.num_found(), 0);
    EXPECT_GT(rows.num_missed(), 0);
  }
}

TEST(DiskRows, RefusesMoreRowsAtOnceThanItHasRoomFor) {
  const harness::TemporaryFolder folder;
  Numbers numbers(2);
  DiskRows rows({.table = "t", .num_rows = 9, .num_slots = 2, .folder = folder.path()},
                numbers.image());
  std::vector<int64_t> slots;
  const std::vector<int64_t> wanted{1, 2, 3};
  EXPECT_THAT(harness::message_of<ConfigError>([&] { rows.fetch(wanted, slots); }),
              AllOf(HasSubstr("\"t\""), HasSubstr("2 rows"), HasSubstr("tables.memory")));
}

TEST(DiskRows, GrowsForgetsAndLendsSlots) {
  const harness::TemporaryFolder folder;
  Numbers numbers(3);
  DiskRows rows({.table = "t", .num_rows = 2, .num_slots = 3, .folder = folder.path()},
                numbers.image());
  const auto fetch = [&](int64_t row) -> int64_t& {
    std::vector<int64_t> slots;
    rows.release();
    rows.fetch(std::vector<int64_t>{row}, slots);
    rows.mark_changed(slots[0]);
    return numbers.slots[static_cast<size_t>(slots[0])];
  };
  rows.grow(50);
  for (int64_t row = 0; row < 50; ++row) fetch(row) = 100 + row;
  for (int64_t row = 0; row < 50; row += 2) rows.forget(row);
  EXPECT_FALSE(rows.was_changed(0));
  for (int i = 0; i < 9; ++i) {  // what is in lent slots reaches no row
    rows.release();
    std::vector<int64_t> lent{rows.lend(), rows.lend(), rows.lend()};
    EXPECT_EQ((std::set(lent.begin(), lent.end()).size()), 3U);
    for (const int64_t slot : lent) {
      numbers.slots[static_cast<size_t>(slot)] = -1;
      rows.mark_changed(slot);
    }
    EXPECT_THAT(harness::message_of<ConfigError>([&] { rows.lend(); }), HasSubstr("tables.memory"));
  }
  for (int64_t row = 0; row < 50; ++row) EXPECT_EQ(fetch(row), row % 2 == 0 ? row : 100 + row);
  rows.clear(60);
  for (int64_t row = 0; row < 60; ++row) EXPECT_EQ(fetch(row), row);
  std::vector<int64_t> seen;
  fetch(7) = 70;
  rows.change_again({1, 7, 59}, [&](std::span<const int64_t> slots) {
    for (const int64_t slot : slots) seen.push_back(numbers.slots[static_cast<size_t>(slot)]++);
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 70, 59}));
  EXPECT_EQ(fetch(7), 71);
}

TEST(DiskRows, SaysWhatDoesNotFitOnTheDisk) {
  const harness::TemporaryFolder folder;
  Numbers numbers(2);
  const DiskRowsOptions options{
      .table = "t", .num_rows = int64_t{1} << 30, .num_slots = 2, .folder = folder.path()};
  RowImage image = numbers.image();
  image.num_bytes = int64_t{1} << 20;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { DiskRows(options, image); }),
              AllOf(HasSubstr("tables.folder"), HasSubstr("no room for"), HasSubstr("\"t\"")));
}

TEST(DiskRows, KnowsWhichRowsWereChanged) {
  const harness::TemporaryFolder folder;
  Numbers numbers(1);
  DiskRows rows({.table = "t", .num_rows = 9, .num_slots = 1, .folder = folder.path()},
                numbers.image());
  std::vector<int64_t> slots;
  rows.fetch(std::vector<int64_t>{4}, slots);
  EXPECT_FALSE(rows.was_changed(4));
  rows.mark_changed(slots[0]);
  EXPECT_TRUE(rows.was_changed(4));
  rows.release();
  rows.fetch(std::vector<int64_t>{5}, slots);
  EXPECT_TRUE(rows.was_changed(4));
  EXPECT_FALSE(rows.was_changed(5));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
