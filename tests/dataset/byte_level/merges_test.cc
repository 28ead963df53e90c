#include "trireme/dataset/byte_level/merges.h"

#include <gtest/gtest.h>

#include "trireme/base/random/random.h"

namespace trireme::dataset {
namespace {

std::vector<int32_t> merged(const std::vector<Merge>& merges, std::vector<int32_t> tokens) {
  MergeMemory memory;
  MergeTable(merges).apply(tokens, memory);
  return tokens;
}

TEST(MergeTable, MergesTheLowestRankFirst) {
  const std::vector<Merge> merges = {{1, 2, 10}, {0, 1, 11}, {10, 2, 12}};
  EXPECT_EQ(merged(merges, {0, 1, 2}), (std::vector<int32_t>{0, 10}));
  EXPECT_EQ(merged(merges, {0, 1, 2, 2}), (std::vector<int32_t>{0, 12}));
  EXPECT_EQ(merged(merges, {0, 1, 0}), (std::vector<int32_t>{11, 0}));
}

TEST(MergeTable, MergesTheFirstOfSeveralPairs) {
  EXPECT_EQ(merged({{0, 0, 1}}, {0, 0, 0, 0, 0}), (std::vector<int32_t>{1, 1, 0}));
}

TEST(MergeTable, LeavesWhatNoMergeNames) {
  EXPECT_EQ(merged({}, {3, 4}), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(merged({{0, 0, 1}}, {}), std::vector<int32_t>{});
  EXPECT_EQ(merged({{0, 0, 1}}, {0}), std::vector<int32_t>{0});
}

TEST(MergeTable, TakesTheLastOfTwoMergesOfAPair) {
  EXPECT_EQ(merged({{0, 1, 5}, {0, 1, 6}}, {0, 1}), std::vector<int32_t>{6});
}

// The definition: look over all tokens for the best pair, merge its first place, look again.
std::vector<int32_t> merged_slowly(const std::vector<Merge>& merges, std::vector<int32_t> tokens) {
  while (true) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t rank = merges.size(); rank-- > 0;) {
      for (size_t i = tokens.size(); i-- > 1;) {
        if (tokens[i - 1] != merges[rank].left || tokens[i] != merges[rank].right) continue;
        best = rank;
        place = i - 1;
      }
    }
    if (best == merges.size()) return tokens;
    tokens[place] = merges[best].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(MergeTable, AgreesWithItsDefinition) {
  for (int round = 0; round < 300; ++round) {
    const RandomKey key = random_key(static_cast<uint64_t>(round), "merges");
    std::vector<Merge> merges;
    std::vector<std::pair<int32_t, int32_t>> pairs;
    // Each result is a token of its own, and each pair occurs once.
    for (int32_t i = 0; i < 12; ++i) {
      const auto bits = random_bits(key, i);
      const auto count = static_cast<uint32_t>(3 + i);
      const std::pair<int32_t, int32_t> pair = {bits[0] % count, bits[1] % count};
      if (std::find(pairs.begin(), pairs.end(), pair) != pairs.end()) continue;
      pairs.push_back(pair);
      merges.push_back({pair.first, pair.second, 3 + i});
    }
    std::vector<int32_t> tokens;
    for (int i = 0; i < round % 40; ++i) tokens.push_back(random_bits(key, 100 + i)[0] % 3);
    EXPECT_EQ(merged(merges, tokens), merged_slowly(merges, tokens)) << "round " << round;
  }
}

TEST(MergeTable, MergesAMillionOfTheSame) {
  std::vector<Merge> merges;
  for (int32_t i = 0; i < 20; ++i) merges.push_back({i, i, i + 1});
  EXPECT_EQ(merged(merges, std::vector<int32_t>(1 << 20, 0)), std::vector<int32_t>{20});
}

}  // namespace
}  // namespace trireme::dataset
