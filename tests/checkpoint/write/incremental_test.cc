// Checkpoints that share what has not changed with the one before.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/checkpoint/version_1.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

mesh::Layout rows(const at::Tensor& tensor, int ranks) {
  return {tensor.sizes().vec(), {{"data", ranks}}, {mesh::Placement::sharded(0)}};
}

// Ten tensors of 512 KiB.
std::vector<Global> model(int ranks, uint64_t seed = 0) {
  std::vector<Global> globals;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "w" + std::to_string(i);
    const at::Tensor tensor = random_tensor(name, {512, 256}, at::kInt, seed);
    globals.push_back({name, tensor, rows(tensor, ranks)});
  }
  return globals;
}

class Incremental : public ::testing::Test {
 protected:
  fs::path step(int64_t number) const { return root_ / folder_name(number); }
  void save_step(int64_t number, std::span<const Global> globals, int ranks,
                 SaveOptions options = kFast) {
    save_all(root_.path(), number, globals, ranks, options);
    EXPECT_THAT(verify(step(number)).problems, IsEmpty());
  }

  harness::TemporaryFolder root_;
};

TEST_F(Incremental, WhatHasNotChangedIsNotWrittenAgain) {
  for (const int ranks : {1, 2, 3}) {
    const int64_t first = 10 * ranks;
    std::vector<Global> globals = model(ranks);
    save_step(first, globals, ranks);
    const int64_t whole = own_bytes(step(first));
    globals[3].tensor.add_(1);
    save_step(first + 1, globals, ranks);
    EXPECT_LE(own_bytes(step(first + 1)), whole * 12 / 100) << ranks;
    expect_loads(step(first + 1), globals, ranks);
    save_step(first + 2, globals, ranks);
    EXPECT_LE(own_bytes(step(first + 2)), 64 << 10) << "the manifest alone";
    expect_loads(step(first + 2), globals, ranks);
    for (int64_t i = 0; i < 3; ++i) fs::remove_all(step(first + i));
  }
}

TEST_F(Incremental, RemovingEarlierCheckpointsTakesNothingFromLaterOnes) {
  std::vector<Global> globals = model(2);
  for (int64_t number = 1; number <= 6; ++number) {
    globals[number % 10].tensor.add_(1);
    save_step(number, globals, 2, {.keep = 1, .fsync = false});
    EXPECT_THAT(list(root_.path()), ElementsAre(step(number)));
    expect_loads(step(number), globals, 2);
  }
  const fs::path copy = root_ / "copy";
  fs::copy(step(6), copy);
  fs::remove_all(step(6));
  expect_loads(copy, globals, 2);
}

// Other ranks hold other rows, but chunks begin at the same rows of the whole tensor.
TEST_F(Incremental, AnotherLayoutSharesItsWholeChunks) {
  const at::Tensor tensor = random_tensor("w", {16'384, 256}, at::kInt);  // 1024 rows a chunk
  const auto with = [&](int ranks) {
    return std::vector<Global>{{"w", tensor, rows(tensor, ranks)}};
  };
  save_step(1, with(1), 1);
  const int64_t whole = own_bytes(step(1));
  save_step(2, with(2), 2);
  EXPECT_LE(own_bytes(step(2)), 64 << 10);
  save_step(3, with(3), 3);  // two cuts, each within a chunk
  EXPECT_LE(own_bytes(step(3)), whole / 4);
  expect_loads(step(3), with(2), 2);
}

TEST_F(Incremental, AFileOfWhichLessThanHalfIsUsedIsLeft) {
  std::vector<Global> globals = model(1);
  save_step(1, globals, 1);
  const int64_t whole = own_bytes(step(1));
  for (int i = 0; i < 6; ++i) globals[i].tensor.add_(1);
  save_step(2, globals, 1);  // has four tenths of the first file
  EXPECT_NEAR(own_bytes(step(2)), whole * 6 / 10, whole / 20);
  save_step(3, globals, 1);
  EXPECT_NEAR(own_bytes(step(3)), whole * 4 / 10, whole / 20) << "written again, out of that file";
  save_step(4, globals, 1);
  EXPECT_LE(own_bytes(step(4)), 64 << 10);
  fs::remove_all(step(1));
  fs::remove_all(step(2));
  expect_loads(step(4), globals, 1);
}

TEST_F(Incremental, WithoutItEveryCheckpointHasItsOwnBytes) {
  const std::vector<Global> globals = model(2);
  SaveOptions options = kFast;
  options.incremental = false;
  save_step(1, globals, 2, options);
  const int64_t whole = own_bytes(step(1));
  save_step(2, globals, 2, options);
  EXPECT_EQ(own_bytes(step(2)), whole);
}

// As a run that begins with the weights of another.
TEST_F(Incremental, AnotherRunsBytesAreSharedAndOutliveIt) {
  std::vector<Global> globals = model(2);
  const fs::path other = root_ / "other";
  save_all(other, 9, globals, 2);
  globals[0].tensor.add_(1);
  SaveOptions options = kFast;
  options.shared_roots = {root_ / "none", other};
  save_step(1, globals, 2, options);
  EXPECT_LE(own_bytes(step(1)), 1 << 20);
  fs::remove_all(other / folder_name(9));
  expect_loads(step(1), globals, 2);
  globals[1].tensor.add_(1);
  save_step(2, globals, 2, options);
  EXPECT_LE(own_bytes(step(2)), 1 << 20);
  expect_loads(step(2), globals, 2);
}

TEST_F(Incremental, NothingIsTakenFromADamagedCheckpoint) {
  const std::vector<Global> globals = model(2);
  save_step(1, globals, 2);
  const int64_t whole = own_bytes(step(1));
  const std::string manifest = read_file(step(1) / kManifestName);
  overwrite(step(1) / kManifestName, with_flipped_bit(manifest, 999));
  save_step(2, globals, 2);
  EXPECT_EQ(own_bytes(step(2)), whole);
  expect_loads(step(2), globals, 2);
}

// As when a run goes on from the checkpoint before and comes to the damaged one again.
TEST_F(Incremental, DamagedBytesAreWrittenAgain) {
  std::vector<Global> globals = model(2);
  save_step(1, globals, 2);
  globals[3].tensor.add_(1);
  save_step(2, globals, 2);
  for (const auto& item : fs::directory_iterator(step(2))) {
    struct stat status {};
    EXPECT_EQ(::stat(item.path().c_str(), &status), 0);
    if (status.st_nlink > 1 || item.path().filename() == kManifestName) continue;
    const std::string bytes = read_file(item.path());
    overwrite(item.path(), with_flipped_bit(bytes, 8 * bytes.size() - 1));
  }
  ASSERT_THAT(verify(step(2)).problems, Not(IsEmpty()));
  save_step(3, globals, 2);
  expect_loads(step(3), globals, 2);
  EXPECT_LE(own_bytes(step(3)), 2 << 20) << "the rest is that of step 1";
  save_step(2, globals, 2);
  expect_loads(step(2), globals, 2);
}

// The same for every way in which a linked file can be damaged, compressed or not.
TEST_F(Incremental, NoDamagedFileIsTakenOver) {
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    if (compression == Compression::kZstd && !has_zstd()) continue;
    SaveOptions options = kFast;
    options.compression = compression;
    for (const std::string damage : {"tail", "header", "cut", "empty"}) {
      const harness::TemporaryFolder root;
      const std::vector<Global> globals = {
          {"w", at::zeros({3000, 600}, at::kInt), mesh::Layout({3000, 600}, {})}};
      save_all(root.path(), 1, globals, 1, options);
      const fs::path file = root / folder_name(1) / "rank-000-of-001.safetensors";
      const std::string bytes = read_file(file);
      overwrite(file, damage == "tail"     ? with_flipped_bit(bytes, 8 * bytes.size() - 1)
                      : damage == "header" ? with_flipped_bit(bytes, 8 * 12)
                      : damage == "cut"    ? bytes.substr(0, bytes.size() / 2)
                                           : "");
      save_all(root.path(), 2, globals, 1, options);
      EXPECT_THAT(verify(root / folder_name(2)).problems, IsEmpty()) << damage;
      expect_loads(root / folder_name(2), globals, 1);
    }
  }
}

TEST_F(Incremental, AnEarlierFormatIsLoadedAndNotShared) {
  std::vector<Global> globals = model(2);
  for (Global& global : globals) {  // each its own entry
    global.tensor = global.tensor.narrow(0, 0, 3).contiguous();
    global.layout = rows(global.tensor, 2);
  }
  save_step(1, globals, 2);
  to_version_1(step(1));
  EXPECT_THAT(verify(step(1)).problems, IsEmpty());
  expect_loads(step(1), globals, 2);
  save_step(2, globals, 2);
  expect_loads(step(2), globals, 2);
}

TEST_F(Incremental, CompressedChunksLoadAtAnyLayoutAndAreSharedToo) {
  ASSERT_TRUE(has_zstd()) << "built without libzstd-dev, which tools/setup.sh installs";
  std::vector<Global> globals;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "w" + std::to_string(i);
    const at::Tensor tensor =
        at::arange(i * 1000, i * 1000 + 300'000, at::kFloat).view({300, 1000});
    globals.push_back({name, tensor, rows(tensor, 2)});
  }
  globals.push_back({"half", at::ones({77, 3}, at::kHalf), {{77, 3}, {{"data", 2}}}});
  globals.push_back({"none", at::zeros({0, 3}), {{0, 3}, {{"data", 2}}}});
  globals.push_back({"scalar", at::full({}, 5, at::kLong), {{}, {{"data", 2}}}});
  SaveOptions options = kFast;
  options.compression = Compression::kZstd;
  save_step(1, globals, 2, options);
  EXPECT_LT(own_bytes(step(1)), 4 * 300'000 * 4 * 3 / 4);
  for (const Global& global : globals) {
    harness::assert_same_bits(load_tensor(step(1), global.name), global.tensor, global.name);
  }
  expect_loads(step(1), globals, 2);
  save_step(2, globals, 2, options);
  EXPECT_LE(own_bytes(step(2)), 64 << 10);
}

// The planes of elements of 8 bytes are not those of elements of 4.
TEST_F(Incremental, EqualBytesOfAnotherDtypeAreReadAsTheyWereCompressed) {
  if (!has_zstd()) return;
  SaveOptions options = kFast;
  options.compression = Compression::kZstd;
  const at::Tensor narrow = at::arange(1 << 18, at::kInt) * 1000;
  const at::Tensor wide = narrow.view(at::kLong);
  const std::vector<Global> globals{{"narrow", narrow, rows(narrow, 1)},
                                    {"wide", wide, rows(wide, 1)}};
  save_step(1, globals, 1, options);
  expect_loads(step(1), globals, 1);
  const std::vector<Global> reversed{{"narrow", narrow, rows(narrow, 1)}};
  save_step(2, reversed, 1, options);
  expect_loads(step(2), reversed, 1);
}

TEST_F(Incremental, AFlippedBitOfACompressedChunkIsFound) {
  ASSERT_TRUE(has_zstd());
  const at::Tensor tensor = at::arange(3000, at::kFloat).view({30, 100});
  SaveOptions options = kFast;
  options.compression = Compression::kZstd;
  save_step(1, std::vector<Global>{{"w", tensor, rows(tensor, 1)}}, 1, options);
  const fs::path file = step(1) / "rank-000-of-001.safetensors";
  const std::string content = read_file(file);
  for (size_t bit = 8 * 4096; bit < 8 * content.size(); bit += 13) {
    overwrite(file, with_flipped_bit(content, bit));
    EXPECT_THAT(verify(step(1)).problems, SizeIs(1)) << bit;
  }
}

}  // namespace
}  // namespace trireme::checkpoint
