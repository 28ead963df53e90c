#include "trireme/train/metrics/series_block.h"

#include <cmath>
#include <limits>
#include <variant>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/train/metrics/series_samples.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

SeriesBlock block_of(int64_t first, int64_t count, bool is_thinned = false) {
  SeriesBlock block{.shape = shape_of_series(), .epoch = 3, .is_thinned = is_thinned};
  for (int64_t step = first; step < first + count; ++step) {
    block.steps.push_back(is_thinned ? (step - 1) * kThinnedSteps + 1 : step);
    for (int part = 0; part < (is_thinned ? 3 : 1); ++part) {
      const std::vector<float> row = row_at(step, block.shape);
      block.values.insert(block.values.end(), row.begin(), row.end());
    }
  }
  return block;
}

struct ScannedBlocks {
  std::vector<SeriesBlock> steps{};
  std::vector<WaitBlock> waits{};
  int64_t num_dropped = 0;
  uint64_t end = 0;
};

ScannedBlocks scan(const std::string& bytes) {
  const harness::TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", bytes);
  const InputFile file(folder.path() / "file");
  BlockScanner scanner(file, 0);
  ScannedBlocks found;
  while (auto block = scanner.next()) {
    if (auto* steps = std::get_if<SeriesBlock>(&block->content)) found.steps.push_back(*steps);
    if (auto* waits = std::get_if<WaitBlock>(&block->content)) found.waits.push_back(*waits);
  }
  found.num_dropped = scanner.num_dropped();
  found.end = scanner.offset();
  return found;
}

TEST(SeriesBlock, ReadsBackWhatWasWritten) {
  const SeriesBlock full = block_of(5, 3);
  const SeriesBlock thinned = block_of(1, 2, /*is_thinned=*/true);
  const WaitBlock waits{{{7, "data", 1, 0, 0.5F}, {7, "tensor", 0, 1, 0.25F}}};
  const std::string bytes = to_bytes(thinned) + to_bytes(full) + to_bytes(waits);
  const ScannedBlocks found = scan(bytes);
  ASSERT_EQ(found.steps.size(), 2U);
  EXPECT_TRUE(found.steps[0].is_thinned);
  EXPECT_EQ(found.steps[0].values, thinned.values);
  EXPECT_EQ(found.steps[1].shape, full.shape);
  EXPECT_EQ(found.steps[1].epoch, 3);
  EXPECT_EQ(found.steps[1].steps, full.steps);
  EXPECT_EQ(found.steps[1].values, full.values);
  ASSERT_EQ(found.waits.size(), 1U);
  EXPECT_EQ(found.waits[0].records, waits.records);
  EXPECT_EQ(found.num_dropped, 0);
  EXPECT_EQ(found.end, bytes.size());
}

TEST(SeriesBlock, KeepsNumbersThatAreNotFinite) {
  SeriesBlock block = block_of(1, 1);
  block.values[0] = std::numeric_limits<float>::quiet_NaN();
  block.values[1] = std::numeric_limits<float>::infinity();
  const ScannedBlocks found = scan(to_bytes(block));
  ASSERT_EQ(found.steps.size(), 1U);
  EXPECT_TRUE(std::isnan(found.steps[0].values[0]));
  EXPECT_TRUE(std::isinf(found.steps[0].values[1]));
}

TEST(SeriesBlock, HasItsFieldsWhereTheDocsSayThatTheyAre) {
  const std::string bytes = to_bytes(block_of(5, 3));
  EXPECT_EQ(bytes.substr(0, 8), "TRISERI1");
  EXPECT_EQ(bytes[8], 1);  // kind
  EXPECT_EQ(bytes.size(), 64U + static_cast<unsigned char>(bytes[16]));
  EXPECT_EQ(bytes[32], 5);   // first step
  EXPECT_EQ(bytes[40], 7);   // last step
  EXPECT_EQ(bytes[48], 3);   // epoch
  EXPECT_EQ(bytes[56], 3);   // rows
  EXPECT_EQ(bytes[64], 2);   // ranks
  EXPECT_EQ(bytes[68], 3);   // columns
  EXPECT_EQ(bytes[72], 12);  // letters of the first
  EXPECT_EQ(bytes.substr(74, 12), "step_seconds");
}

TEST(SeriesBlock, ADamagedByteCostsItsBlockAndNoOther) {
  const std::string first = to_bytes(block_of(1, 4));
  const std::string second = to_bytes(block_of(5, 4));
  const std::string third = to_bytes(block_of(9, 4));
  for (size_t at = 0; at < second.size(); ++at) {
    std::string damaged = second;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    const ScannedBlocks found = scan(first + damaged + third);
    ASSERT_EQ(found.steps.size(), 2U) << "byte " << at;
    EXPECT_EQ(found.steps[0].steps.front(), 1) << "byte " << at;
    EXPECT_EQ(found.steps[1].steps.front(), 9) << "byte " << at;
    EXPECT_GE(found.num_dropped, 1) << "byte " << at;
  }
}

// More of it than is looked at at once, so that headers lie across its ends too.
TEST(SeriesBlock, DamageThatIsFullOfMagicNumbersIsOneStretch) {
  const std::string block = to_bytes(block_of(1, 4));
  for (size_t count = 1; count <= 20'000; count += count < 100 ? 1 : 1111) {
    std::string damage = "x";
    for (size_t i = 0; i < count; ++i) damage += "TRISERI1";
    const ScannedBlocks found = scan(damage + block);
    ASSERT_EQ(found.steps.size(), 1U) << count;
    EXPECT_EQ(found.num_dropped, 1) << count;
    EXPECT_EQ(found.end, damage.size() + block.size()) << count;
    // At the end the last ones may be the beginnings of blocks.
    EXPECT_GE(scan(damage).end + kBlockHeaderBytes, damage.size()) << count;
  }
}

TEST(SeriesBlock, APartOfABlockAtTheEndIsWaitedFor) {
  const std::string first = to_bytes(block_of(1, 4));
  const std::string second = to_bytes(block_of(5, 4));
  for (size_t size = 0; size < second.size(); ++size) {
    const ScannedBlocks found = scan(first + second.substr(0, size));
    ASSERT_EQ(found.steps.size(), 1U) << size;
    EXPECT_EQ(found.end, first.size()) << size;
    EXPECT_EQ(found.num_dropped, 0) << size;
  }
}

}  // namespace
}  // namespace trireme::train
