#include "trireme/checkpoint/chunk/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Rows = std::vector<int64_t>;

Chunk chunk_of(uint64_t num_bytes) { return {.stored_bytes = num_bytes, .num_bytes = num_bytes}; }

TEST(Patch, ARowHasTheBytesOfItsBox) {
  EXPECT_EQ(row_bytes_of({{0, 0}, {5, 3}}, 4), 12u);
  EXPECT_EQ(row_bytes_of({{2}, {5}}, 4), 4u);
  EXPECT_EQ(row_bytes_of({{0, 0, 7}, {5, 3, 2}}, 2), 12u);
  EXPECT_EQ(row_bytes_of({}, 4), 0u) << "a scalar has no rows";
}

TEST(Patch, NoChunkIsLargerThanAllowed) {
  for (const uint64_t row_bytes : {uint64_t{1}, uint64_t{4}, uint64_t{256}, uint64_t{512},
                                   uint64_t{513}, uint64_t{100'000}, kChunkBytes}) {
    const auto rows = static_cast<uint64_t>(rows_per_chunk(row_bytes));
    EXPECT_GE(rows, 1u);
    EXPECT_LE(rows * row_bytes, kChunkBytes) << row_bytes;
    EXPECT_LE(rows * kRowNumberBytes, kChunkBytes) << row_bytes;
    EXPECT_EQ(rows == 2048, row_bytes <= 512) << "then tensors of a table share the numbers";
  }
}

TEST(Patch, SizesMustFitEachOtherAndThePiece) {
  const Patch good{.rows = {chunk_of(24), chunk_of(8)}, .values = {chunk_of(36), chunk_of(12)}};
  EXPECT_EQ(good.num_rows(), 4);
  EXPECT_EQ(patch_error(good, 12, 4), "");
  EXPECT_THAT(patch_error(good, 12, 3), HasSubstr("4 rows where at most 3"));
  EXPECT_THAT(patch_error(good, 11, 4), HasSubstr("36 bytes of values for 3 rows, expected 11"));
  EXPECT_THAT(patch_error(good, 0, 4), HasSubstr("rows of 0 bytes"));
  EXPECT_THAT(patch_error(good, kChunkBytes + 1, 4), HasSubstr("expected 1 to 1048576"));
  Patch bad = good;
  bad.values.pop_back();
  EXPECT_THAT(patch_error(bad, 12, 4), HasSubstr("2 chunks of rows and 1 of values"));
  EXPECT_THAT(patch_error({}, 12, 4), HasSubstr("0 chunks of rows"));
  bad = good;
  bad.rows[1] = chunk_of(9);
  EXPECT_THAT(patch_error(bad, 12, 4), HasSubstr("9 bytes, expected 8 for each row"));
}

TEST(Patch, RowsAscendWithinThePiece) {
  const mesh::Box box{{10, 0}, {5, 3}};
  const auto take = [&](const Rows& given, Rows& rows) {
    return take_rows(std::as_bytes(std::span(given)), box, rows);
  };
  Rows rows;
  EXPECT_EQ(take({10, 12}, rows), "");
  EXPECT_EQ(take({14}, rows), "");
  EXPECT_THAT(rows, ElementsAre(10, 12, 14));
  EXPECT_THAT(take({14}, rows), HasSubstr("row 14 comes after row 14"));
  EXPECT_THAT(take({13}, rows), HasSubstr("row 13 comes after row 14"));
  rows.clear();
  EXPECT_THAT(take({9}, rows), HasSubstr("row 9 is outside the rows 10 to 14"));
  EXPECT_THAT(take({15}, rows), HasSubstr("row 15 is outside"));
  EXPECT_THAT(take({-1}, rows), HasSubstr("row -1 is outside"));
  EXPECT_THAT(rows, ElementsAre());
}

}  // namespace
}  // namespace trireme::checkpoint
