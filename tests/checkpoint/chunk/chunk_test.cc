#include "trireme/checkpoint/chunk/chunk.h"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;

TEST(CutIntoChunks, OfAnyBoxTheyMakeUpItsBytes) {
  for (const mesh::Box& box :
       {mesh::Box{{}, {}}, mesh::Box{{5}, {1}}, mesh::Box{{3}, {1'000'000}},
        mesh::Box{{0, 0}, {7, 300'000}}, mesh::Box{{2, 9}, {3000, 513}},
        mesh::Box{{1, 0, 2}, {5, 6, 7}}, mesh::Box{{0, 0}, {1, 3'000'001}}}) {
    for (const size_t width : {1, 2, 4, 8}) {
      const std::vector<uint64_t> chunks = cut_into_chunks(box, width);
      EXPECT_EQ(std::accumulate(chunks.begin(), chunks.end(), uint64_t{0}),
                static_cast<uint64_t>(box.numel()) * width);
      EXPECT_THAT(chunks, Each(Le(kChunkBytes)));
      for (const uint64_t chunk : chunks) EXPECT_EQ(chunk % width, 0u);
    }
  }
  EXPECT_THAT(cut_into_chunks({{0, 3}, {0, 4}}, 4), IsEmpty());
  EXPECT_THAT(cut_into_chunks({{2, 0}, {4, 0}}, 4), IsEmpty());
  EXPECT_THAT(cut_into_chunks({{}, {}}, 8), ElementsAre(8));
}

// However the rows are shared out, the cuts lie at the same rows of the whole tensor.
TEST(CutIntoChunks, CutsLieAtTheSameRowsInEveryLayout) {
  constexpr int64_t kRows = 10'000, kColumns = 250;  // 1048 rows a chunk
  const auto cuts = [](int64_t first, int64_t rows) {
    std::set<int64_t> found;
    int64_t row = first;
    for (const uint64_t bytes : cut_into_chunks({{first, 0}, {rows, kColumns}}, 4))
      found.insert(row += static_cast<int64_t>(bytes) / (4 * kColumns));
    found.erase(first + rows);
    return found;
  };
  const std::set<int64_t> whole = cuts(0, kRows);
  EXPECT_EQ(whole.size(), 9u);
  for (const int parts : {2, 3, 7}) {
    std::set<int64_t> all;
    for (int part = 0; part < parts; ++part) {
      const mesh::Range rows = mesh::split_range(kRows, parts, part);
      all.merge(cuts(rows.offset, rows.size));
    }
    EXPECT_EQ(all, whole) << parts << " parts";
  }
}

TEST(Chunk, ItsTextIsReadBack) {
  const Chunk chunk{.file = 3,
                    .begin = 4096,
                    .stored_bytes = 77,
                    .num_bytes = 100,
                    .codec = Codec::kZstdPlanes,
                    .digest = {1, 2},
                    .stored_checksum = "0123456789abcdef"};
  EXPECT_EQ(to_text(chunk),
            "3 4096 77 100 zstd-planes 00000000000000010000000000000002 0123456789abcdef");
  EXPECT_EQ(parse_chunk(to_text(chunk)), chunk);
  const Chunk largest{.file = ~size_t{0}, .begin = ~uint64_t{0}, .stored_bytes = ~uint64_t{0}};
  EXPECT_EQ(parse_chunk(to_text(largest)), largest);
}

}  // namespace
}  // namespace trireme::checkpoint
