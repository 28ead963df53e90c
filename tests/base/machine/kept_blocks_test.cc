#include "trireme/base/machine/kept_blocks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Allocates addresses that are never used as such.
class Memory {
 public:
  KeptBlocks::Block take(size_t bytes) {
    asked += bytes;
    most_asked = std::max(most_asked, asked);
    std::vector<KeptBlocks::Block> evicted;
    KeptBlocks::Block block = kept_.take(bytes, evicted);
    for (const KeptBlocks::Block& old : evicted) free(old);
    if (block.data == nullptr) {
      block.data = &places_[next_++];
      ++num_allocated;
      sizes_[block.data] = block.bytes;
      resident += block.bytes;
    }
    in_use += block.bytes;
    most_in_use = std::max(most_in_use, in_use);
    most_resident = std::max(most_resident, resident);
    return block;
  }
  void keep(KeptBlocks::Block block, size_t bytes_asked = 0) {
    asked -= bytes_asked == 0 ? block.bytes : bytes_asked;
    in_use -= block.bytes;
    kept_.keep(block);
  }
  void free(const KeptBlocks::Block& block) {
    EXPECT_EQ(sizes_.at(block.data), block.bytes);
    resident -= block.bytes;
    sizes_.erase(block.data);
  }
  KeptBlocks& kept() { return kept_; }

  size_t asked = 0, most_asked = 0;
  size_t in_use = 0, most_in_use = 0, resident = 0, most_resident = 0;
  int num_allocated = 0;

 private:
  KeptBlocks kept_;
  std::array<char, 100'000> places_{};
  size_t next_ = 0;
  std::map<void*, size_t> sizes_;
};

TEST(KeptBlocks, ABlockServesItsSizeAndALittleLess) {
  Memory memory;
  const KeptBlocks::Block large = memory.take(900);
  memory.keep(large);
  EXPECT_NE(memory.take(799).data, large.data);  // 900 is more than an eighth above
  memory.keep(memory.take(900));
  const KeptBlocks::Block again = memory.take(800);
  EXPECT_EQ(again.bytes, 900);
  EXPECT_NE(memory.take(800).data, again.data);  // it is in use
}

TEST(KeptBlocks, AnEmptyOneKeepsNothing) {
  KeptBlocks kept;
  std::vector<KeptBlocks::Block> evicted;
  EXPECT_EQ(kept.take(0, evicted).data, nullptr);
  EXPECT_TRUE(evicted.empty());
  EXPECT_TRUE(kept.release_all().empty());
  EXPECT_EQ(kept.kept_bytes(), 0);
}

TEST(KeptBlocks, WhatWasFreedLongestAgoGoesFirst) {
  Memory memory;
  std::vector<KeptBlocks::Block> blocks;
  for (const size_t size : {100, 200, 100, 300}) blocks.push_back(memory.take(size));
  for (const size_t i : {2, 0, 1, 3}) memory.keep(blocks[i]);
  std::vector<KeptBlocks::Block> evicted;
  memory.kept().take(400, evicted);  // leaves room for 300 of 700
  std::vector<void*> places;
  for (const KeptBlocks::Block& old : evicted) places.push_back(old.data);
  EXPECT_EQ(places, (std::vector<void*>{blocks[2].data, blocks[0].data, blocks[1].data}));
}

TEST(KeptBlocks, ARepeatedStepAllocatesNothingNew) {
  Memory memory;
  for (int step = 0; step < 10; ++step) {
    std::vector<KeptBlocks::Block> activations;
    for (const size_t size : {500, 100, 700, 100, 900}) activations.push_back(memory.take(size));
    for (; !activations.empty(); activations.pop_back()) memory.keep(activations.back());
  }
  EXPECT_EQ(memory.num_allocated, 5);
  EXPECT_EQ(memory.kept().kept_bytes(), 2300);
  EXPECT_EQ(memory.kept().release_all().size(), 5);
  EXPECT_EQ(memory.kept().kept_bytes(), 0);
}

TEST(KeptBlocks, ResidentMemoryIsNeverMoreThanWhatWasInUseAtOnce) {
  Memory memory;
  std::mt19937 random(1);
  std::vector<std::pair<KeptBlocks::Block, size_t>> blocks;
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.empty() || random() % 2 == 0) {
      const size_t bytes = 1 + random() % 1000;
      blocks.emplace_back(memory.take(bytes), bytes);
    } else {
      const size_t which = random() % blocks.size();
      memory.keep(blocks[which].first, blocks[which].second);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
    }
    ASSERT_EQ(memory.resident, memory.in_use + memory.kept().kept_bytes());
  }
  EXPECT_EQ(memory.most_resident, memory.most_in_use);
  EXPECT_LE(memory.most_resident, memory.most_asked + memory.most_asked / 8);
  EXPECT_LT(memory.num_allocated, 9'000);  // of 10,000
}

TEST(KeptBlocks, WhatIsForgottenIsNoLongerInUse) {
  Memory memory;
  const KeptBlocks::Block block = memory.take(100);
  memory.kept().forget(memory.take(1000).bytes);  // allocation failed
  memory.keep(block);
  memory.take(1000);  // more than has ever been in use at once
  EXPECT_EQ(memory.kept().kept_bytes(), 0);
}

}  // namespace
}  // namespace trireme
