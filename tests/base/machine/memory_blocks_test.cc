#include "trireme/base/machine/memory_blocks.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/machine/memory_ledger.h"

namespace trireme {
namespace {

using enum MemoryKind;

TEST(MemoryBlocks, TheSnapshotHasTheLargestAtThePeakWithTheirPlaces) {
  int count = 0;
  MemoryBlocks blocks([&](const MemorySnapshot& /*snapshot*/) { ++count; });
  const std::string unit = "layers.3";
  blocks.set_step(7);
  const uint64_t first = blocks.add(kWeights, 1000);
  {
    const MemoryUnit scope(unit);
    enter_memory_operation("aten::softmax");
    enter_memory_operation("aten::empty");
    blocks.add(kActivations, 3000);
    leave_memory_operation();
    leave_memory_operation();
  }
  blocks.remove(first);
  blocks.add(kOther, 500);  // below the peak
  const MemorySnapshot snapshot = blocks.snapshot();
  EXPECT_EQ(count, 2);
  EXPECT_EQ(snapshot.step, 7);
  EXPECT_EQ(snapshot.kinds.total(), 4000);
  ASSERT_EQ(snapshot.largest.size(), 2u);
  EXPECT_EQ(snapshot.largest[0].bytes, 3000);
  EXPECT_EQ(snapshot.largest[0].operation, "aten::softmax");
  EXPECT_EQ(snapshot.largest[0].unit, unit);
  EXPECT_EQ(snapshot.largest[1].operation, "");
  EXPECT_EQ(snapshot.largest[1].unit, "");
}

TEST(MemoryBlocks, AStartTakesFewSnapshotsAndTheSecondStepFindsThePeak) {
  int count = 0;
  MemoryBlocks blocks([&](const MemorySnapshot& /*snapshot*/) { ++count; });
  std::vector<uint64_t> numbers;
  int64_t total = 0;
  const auto make_step = [&](int64_t step) {
    blocks.set_step(step);
    total = 0;
    for (int64_t bytes = 1 << 10; total < int64_t{10} << 30; bytes += bytes / 200) {
      numbers.push_back(blocks.add(kActivations, bytes));
      total += bytes;
    }
    for (const uint64_t number : numbers) blocks.remove(number);
    numbers.clear();
  };
  make_step(1);
  EXPECT_GT(count, 50);
  EXPECT_LT(count, 150);
  EXPECT_GT(blocks.snapshot().kinds.total(), total * 8 / 9);
  count = 0;
  make_step(2);
  EXPECT_LT(count, 14);
  EXPECT_GT(blocks.snapshot().kinds.total(), total * 100 / 101 - 1);
  make_step(3);
  EXPECT_LT(count, 14);
}

TEST(MemoryBlocks, AFailureStaysAndTheSnapshotIsBounded) {
  MemoryBlocks blocks(nullptr);
  for (int i = 1; i <= 1000; ++i) blocks.add(kStates, i);
  blocks.fail(1 << 20);
  for (int i = 1; i <= 1000; ++i) blocks.add(kStates, 1 << 20);
  const MemorySnapshot snapshot = blocks.snapshot();
  EXPECT_EQ(snapshot.failed_bytes, 1 << 20);
  EXPECT_EQ(snapshot.kinds.total(), 1000 * 1001 / 2);
  ASSERT_EQ(snapshot.largest.size(), MemoryBlocks::kMostBlocks);
  EXPECT_EQ(snapshot.largest.front().bytes, 1000);
  EXPECT_EQ(snapshot.largest.back().bytes, 901);
}

TEST(MemoryBlocks, ALedgersChargesAreBlocksWhileTheyLive) {
  const auto ledger = MemoryLedger::make();
  EXPECT_EQ(ledger->blocks(), nullptr);
  std::vector<MemoryCharge> charges;
  charges.emplace_back(100, MemoryOwner{ledger, kStates});
  ledger->watch_blocks(nullptr);
  charges.emplace_back(200, MemoryOwner{ledger, kBuckets});
  charges.emplace_back(300, MemoryOwner{ledger, kBuckets});
  EXPECT_EQ(ledger->blocks()->snapshot().kinds[kBuckets], 500);
  charges.clear();
  ledger->blocks()->fail(1);
  EXPECT_TRUE(ledger->blocks()->snapshot().largest.empty());
  EXPECT_EQ(ledger->blocks()->snapshot().kinds.total(), 0);
  EXPECT_EQ(ledger->use().now.total(), 0);
}

}  // namespace
}  // namespace trireme
