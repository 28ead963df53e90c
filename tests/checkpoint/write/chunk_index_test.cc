#include "trireme/checkpoint/write/chunk_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;

Chunk chunk_of(size_t file, uint64_t begin, uint64_t num_bytes, uint64_t digest) {
  return {.file = file,
          .begin = begin,
          .stored_bytes = num_bytes,
          .num_bytes = num_bytes,
          .digest = {digest, 0}};
}

Manifest with_chunks(std::vector<Chunk> chunks, size_t num_files) {
  Manifest manifest;
  manifest.tensors["w"].pieces = {{.chunks = std::move(chunks)}};
  for (size_t i = 0; i < num_files; ++i)
    manifest.files.push_back({std::to_string(i), 20'000, std::string(16, 'a')});
  return manifest;
}

TEST(ChunkIndex, FindsAChunkByItsDigestAndSize) {
  ChunkIndex index;
  index.add(chunk_of(0, 0, 5000, 1), 4);
  index.add(chunk_of(0, 5000, 4095, 2), 4);
  ASSERT_NE(index.find({1, 0}, 5000, 8), nullptr);
  EXPECT_EQ(*index.find({1, 0}, 5000, 8), chunk_of(0, 0, 5000, 1));
  EXPECT_EQ(index.find({1, 0}, 5001, 8), nullptr);
  EXPECT_EQ(index.find({3, 0}, 5000, 8), nullptr);
  EXPECT_EQ(index.find({2, 0}, 4095, 8), nullptr) << "too small to keep a file for";
}

// Planes are joined by the size of an element.
TEST(ChunkIndex, FindsPlanesOnlyForElementsOfTheirSize) {
  Chunk planes = chunk_of(0, 0, 5000, 1);
  planes.codec = Codec::kZstdPlanes;
  ChunkIndex index;
  index.add(planes, 4);
  EXPECT_NE(index.find({1, 0}, 5000, 4), nullptr);
  EXPECT_EQ(index.find({1, 0}, 5000, 8), nullptr);
}

TEST(ChunkIndex, AFileIsSharedWhenAtLeastHalfOfItIsUsed) {
  EXPECT_THAT(shared_files(with_chunks({chunk_of(0, 0, 10'000, 1), chunk_of(1, 0, 9'999, 2)}, 2)),
              ElementsAre(0));
  // A chunk that is used twice counts once.
  EXPECT_THAT(shared_files(with_chunks({chunk_of(0, 0, 6'000, 1), chunk_of(0, 0, 6'000, 1)}, 1)),
              ElementsAre());
  EXPECT_THAT(
      shared_files(with_chunks({chunk_of(0, 0, 6'000, 1), chunk_of(0, 8'000, 6'000, 2)}, 2)),
      ElementsAre(0));
}

// Such a piece needs all of its files, and small ones too.
TEST(ChunkIndex, TheFilesOfPiecesWithPatchesAreSharedTogether) {
  Manifest manifest = with_chunks({chunk_of(0, 0, 20'000, 1)}, 4);
  const Patch small{.rows = {chunk_of(1, 0, 8, 2)}, .values = {chunk_of(1, 8, 400, 3)}};
  manifest.tensors["w"].pieces[0].patches = {small};
  EXPECT_THAT(shared_files(manifest), ElementsAre(0, 1));
  const Patch other{.rows = {chunk_of(2, 0, 8, 4)}, .values = {chunk_of(2, 8, 400, 5)}};
  manifest.tensors["w"].pieces[0].patches = {small, other};
  EXPECT_THAT(shared_files(manifest), ElementsAre(0)) << "20,816 of 60,000 bytes are used";
}

TEST(ChunkIndex, CountsTheFilesThatAreShared) {
  const Manifest manifest =
      with_chunks({chunk_of(0, 0, 5000, 1), chunk_of(1, 0, 5000, 2), chunk_of(2, 0, 5000, 3)}, 3);
  ChunkIndex index;
  add_chunks(manifest, {2, 0}, /*first=*/5, index);
  EXPECT_EQ(index.find({1, 0}, 5000, 4)->file, 6u);
  EXPECT_EQ(index.find({2, 0}, 5000, 4), nullptr);
  EXPECT_EQ(index.find({3, 0}, 5000, 4)->file, 5u);
}

TEST(ChunkIndex, ASharedFilesNameTellsItsHeader) {
  FileRecord file{"rank-000-of-002.safetensors", 10, "0123456789abcdef"};
  EXPECT_FALSE(is_shared(file));
  file.name = shared_name(file);
  EXPECT_EQ(file.name, "shared-0123456789abcdef.safetensors");
  EXPECT_TRUE(is_shared(file));
}

}  // namespace
}  // namespace trireme::checkpoint
