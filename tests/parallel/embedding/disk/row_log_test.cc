#include "trireme/parallel/embedding/disk/row_log.h"

#include <cstring>
#include <map>
#include <random>
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

using Image = std::vector<std::byte>;

Image image_of(int64_t number, int64_t num_bytes) {
  Image image(static_cast<size_t>(num_bytes));
  std::mt19937_64 engine(static_cast<uint64_t>(number));
  for (std::byte& byte : image) byte = static_cast<std::byte>(engine());
  return image;
}

// Compares what is read of rows drawn at random with the images appended last.
void expect_rows(RowLog& log, const std::map<int64_t, Image>& expected, std::mt19937_64& engine,
                 bool is_prefetched) {
  std::vector<int64_t> rows;
  for (const auto& [row, image] : expected) {
    if (engine() % 7 == 0) rows.push_back(row);
  }
  if (is_prefetched) log.prefetch(rows);
  size_t num_read = 0;
  log.read(rows, [&](size_t i, const std::byte* image) {
    ++num_read;
    const Image& wanted = expected.at(rows[i]);
    ASSERT_EQ(Image(image, image + wanted.size()), wanted) << "row " << rows[i];
  });
  EXPECT_EQ(num_read, rows.size());
}

// Every row is appended many times, so that each segment is used again and again.
TEST(RowLog, HasTheNewestImagesHoweverOftenRowsAreAppended) {
  const harness::TemporaryFolder folder;
  std::mt19937_64 engine(4);
  for (const int64_t image_bytes : {8, 260, 5000}) {
    for (const int64_t num_rows : {1, 50, 700}) {
      RowLog log({.table = "t",
                  .folder = folder.path(),
                  .num_rows = num_rows,
                  .image_bytes = image_bytes});
      std::map<int64_t, Image> expected;
      for (int64_t step = 0; step < 60; ++step) {
        for (int64_t i = 0; i < num_rows / 4 + 1; ++i) {
          // Most appends are to few rows, so that some segments keep many newest images.
          const auto limit = static_cast<uint64_t>(engine() % 3 == 0 ? num_rows : num_rows / 8 + 1);
          const auto row = static_cast<int64_t>(engine() % limit);
          expected[row] = image_of(static_cast<int64_t>(engine()), image_bytes);
          log.append(row, expected[row]);
        }
        expect_rows(log, expected, engine, step % 2 == 0);
      }
      for (int64_t row = 0; row < num_rows; ++row) {
        EXPECT_EQ(log.has(row), expected.contains(row));
      }
    }
  }
}

TEST(RowLog, ReadsWhatWasAppendedAfterAPrefetch) {
  const harness::TemporaryFolder folder;
  RowLog log({.table = "t", .folder = folder.path(), .num_rows = 2000, .image_bytes = 500});
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 2000; ++row) {
    log.append(row, image_of(row, 500));
    rows.push_back(row);
  }
  for (int64_t round = 1; round < 4; ++round) {
    log.prefetch(rows);
    for (int64_t row = 0; row < 2000; row += 3) log.append(row, image_of(row + round, 500));
    log.prefetch(rows);
    log.read(rows, [&](size_t i, const std::byte* image) {
      const int64_t row = rows[i];
      ASSERT_EQ(Image(image, image + 500), image_of(row % 3 == 0 ? row + round : row, 500));
    });
  }
}

// Rows come, go, and come again under the same numbers.
TEST(RowLog, GrowsAndErases) {
  const harness::TemporaryFolder folder;
  std::mt19937_64 engine(5);
  for (const bool grows : {false, true}) {
    RowLog log(
        {.table = "t", .folder = folder.path(), .num_rows = 3, .image_bytes = 900, .grows = grows});
    std::map<int64_t, Image> expected;
    int64_t num_rows = 3;
    for (int64_t step = 0; step < 400; ++step) {
      if (step % 9 == 0) log.grow(num_rows += static_cast<int64_t>(engine() % 20));
      for (int64_t i = 0; i < 12; ++i) {
        const auto row = static_cast<int64_t>(engine() % static_cast<uint64_t>(num_rows));
        if (engine() % 3 == 0) {
          log.erase(row);
          expected.erase(row);
        } else {
          expected[row] = image_of(static_cast<int64_t>(engine()), 900);
          log.append(row, expected[row]);
        }
      }
      expect_rows(log, expected, engine, step % 2 == 0);
      if (step != 200) continue;
      log.clear();
      expected.clear();
    }
    for (int64_t row = 0; row < num_rows; ++row) EXPECT_EQ(log.has(row), expected.contains(row));
  }
}

TEST(RowLog, SaysThatTheDiskHasNoRoom) {
  const harness::TemporaryFolder folder;
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                RowLog({.table = "t",
                        .folder = folder.path(),
                        .num_rows = int64_t{1} << 30,
                        .image_bytes = int64_t{1} << 20});
              }),
              AllOf(HasSubstr("tables.folder"), HasSubstr("no room"), HasSubstr("\"t\"")));
}

TEST(RowLog, RefusesMoreRowsThanItCanNumber) {
  const harness::TemporaryFolder folder;
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                RowLog({.table = "t",
                        .folder = folder.path(),
                        .num_rows = int64_t{1} << 32,
                        .image_bytes = 4});
              }),
              AllOf(HasSubstr("4294967296 rows"), HasSubstr("more ranks")));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
