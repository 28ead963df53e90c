#include "trireme/checkpoint/read/read_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kRows = 8;  // of 1 KiB, each a chunk

// "a" and "b" of [8, 256] fp32 in one piece each.
Manifest two_tensors() {
  Manifest manifest{.files = {{"file", 1 << 20, ""}}};
  for (const char* name : {"a", "b"}) {
    Piece piece{.box = {{0, 0}, {kRows, 256}}};
    for (uint64_t row = 0; row < kRows; ++row)
      piece.chunks.push_back({.begin = row * 1024, .stored_bytes = 1024, .num_bytes = 1024});
    manifest.tensors[name] = {.shape = {kRows, 256}, .pieces = {piece}};
  }
  return manifest;
}

const mesh::Box kWhole{{0, 0}, {kRows, 256}};

std::vector<uint64_t> bytes_by_reader(const ReadPlan& plan) {
  std::vector<uint64_t> bytes;
  for (const auto& batches : plan.by_reader) {
    bytes.push_back(0);
    for (const Batch& batch : batches) {
      for (const SharedChunk& each : batch.chunks) bytes.back() += each.chunk.num_bytes;
    }
  }
  return bytes;
}

TEST(ReadPlan, OnlyOverlapsAreInCommon) {
  const mesh::Box top{{0, 0}, {4, 256}}, bottom{{4, 0}, {4, 256}}, empty{{4, 0}, {0, 256}};
  const auto common = [](std::vector<WantedBoxes> ranks) { return any_in_common(ranks); };
  EXPECT_FALSE(common({}));
  EXPECT_FALSE(common({{{"a", kWhole}}}));
  EXPECT_FALSE(common({{{"a", top}}, {{"a", bottom}}, {{"b", kWhole}}, {{"a", empty}}}));
  EXPECT_TRUE(common({{{"a", top}}, {{"b", kWhole}}, {{"a", kWhole}}}));
}

TEST(ReadPlan, WhatAllWantIsReadInEqualParts) {
  const Manifest manifest = two_tensors();
  const std::vector<WantedBoxes> ranks(4, {{"a", kWhole}, {"b", kWhole}});
  const ReadPlan plan = plan_reads(manifest, ranks, 1 << 20);
  EXPECT_THAT(bytes_by_reader(plan), ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_EQ(plan.shared.size(), 2u * kRows);
  for (const auto& batches : plan.by_reader) {
    for (const Batch& batch : batches) EXPECT_EQ(batch.takers.size(), 3u);
  }
}

TEST(ReadPlan, AChunkThatOneRankWantsIsLeftOut) {
  const Manifest manifest = two_tensors();
  const std::vector<WantedBoxes> ranks{
      {{"a", {{0, 0}, {5, 256}}}}, {{"a", {{4, 0}, {4, 256}}}}, {{"b", kWhole}}};
  const ReadPlan plan = plan_reads(manifest, ranks, 1 << 20);
  EXPECT_THAT(bytes_by_reader(plan), ElementsAre(1024, 0, 0));
  const Chunk& row_4 = manifest.tensors.at("a").pieces[0].chunks[4];
  EXPECT_THAT(plan.shared, ElementsAre(&row_4));
  const SharedChunk& shared = plan.by_reader[0][0].chunks[0];
  EXPECT_EQ(shared.at, 4096u);
  EXPECT_THAT(shared.takers, ElementsAre(0, 1));
  EXPECT_THAT(plan.by_reader[0][0].takers, ElementsAre(1));
}

TEST(ReadPlan, BatchesKeepToTheirSize) {
  const Manifest manifest = two_tensors();
  const std::vector<WantedBoxes> ranks(2, {{"a", kWhole}});
  const ReadPlan plan = plan_reads(manifest, ranks, 64 + 2 * 1024);
  EXPECT_EQ(plan.num_rounds(), 2u);
  EXPECT_EQ(plan.largest_batch(), 64u + 2 * 1024);
  for (const auto& batches : plan.by_reader) {
    for (const Batch& batch : batches) {
      ASSERT_EQ(batch.chunks.size(), 2u);
      EXPECT_EQ(batch.chunks[0].place, 64u);
      EXPECT_EQ(batch.chunks[1].place, 64u + 1024);
    }
  }
  // One chunk does not fit.
  EXPECT_EQ(plan_reads(manifest, ranks, 100).num_rounds(), 4u);
}

TEST(ReadPlan, NothingInCommonGivesNoRounds) {
  const Manifest manifest = two_tensors();
  const std::vector<WantedBoxes> ranks{{{"a", kWhole}}, {{"b", kWhole}}};
  const ReadPlan plan = plan_reads(manifest, ranks, 1 << 20);
  EXPECT_EQ(plan.num_rounds(), 0u);
  EXPECT_THAT(plan.shared, IsEmpty());
}

}  // namespace
}  // namespace trireme::checkpoint
