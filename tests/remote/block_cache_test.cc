#include "trireme/remote/block_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::remote {
namespace {

namespace fs = std::filesystem;

class BlockCacheTest : public testing::Test {
 protected:
  BlockCacheTest() : object_(1000, '\0') {
    for (size_t i = 0; i < object_.size(); ++i) object_[i] = static_cast<char>('a' + i % 23);
  }
  BlockCacheOptions options() const {
    return {.folder = folder_.path() / "cache", .max_bytes = 4096, .block_bytes = 64};
  }
  // Whether bytes [offset, offset + size) are right.
  bool reads(BlockCache& cache, uint64_t offset, size_t size, const std::string& key = "key") {
    std::string text(size, '?');
    cache.read(key, object_.size(), offset, std::as_writable_bytes(std::span(text)),
               [this](uint64_t from, std::span<std::byte> out) { fetch(from, out); });
    return text == object_.substr(offset, size);
  }
  void fetch(uint64_t from, std::span<std::byte> out) {
    ++num_fetched_;
    ASSERT_LE(from + out.size(), object_.size());
    std::ranges::copy(std::as_bytes(std::span(object_)).subspan(from, out.size()), out.begin());
  }
  std::vector<fs::path> blocks() const {
    std::vector<fs::path> found;
    for (const auto& each : fs::directory_iterator(options().folder)) {
      if (each.path().extension() == ".block") found.push_back(each.path());
    }
    return found;
  }
  uint64_t cached_bytes() const {
    uint64_t sum = 0;
    for (const fs::path& path : blocks()) sum += fs::file_size(path);
    return sum;
  }

  harness::TemporaryFolder folder_;
  std::string object_;
  std::atomic<int> num_fetched_{0};
};

TEST_F(BlockCacheTest, ReadsWholeBlocksOnce) {
  BlockCache cache(options());
  EXPECT_TRUE(reads(cache, 0, 1));
  EXPECT_TRUE(reads(cache, 63, 1));
  EXPECT_EQ(num_fetched_, 1);
  EXPECT_TRUE(reads(cache, 60, 200));  // blocks 0 to 4
  EXPECT_EQ(num_fetched_, 5);
  EXPECT_TRUE(reads(cache, 0, object_.size()));  // the last block is shorter
  EXPECT_EQ(num_fetched_, 16);
  BlockCache other(options());  // of another process
  EXPECT_TRUE(reads(other, 0, object_.size()));
  EXPECT_EQ(num_fetched_, 16);
}

TEST_F(BlockCacheTest, AnotherObjectHasOtherBlocks) {
  BlockCache cache(options());
  EXPECT_TRUE(reads(cache, 0, 64, "a"));
  EXPECT_TRUE(reads(cache, 0, 64, "b"));
  EXPECT_EQ(num_fetched_, 2);
}

TEST_F(BlockCacheTest, ADamagedBlockIsReadAgain) {
  BlockCache cache(options());
  EXPECT_TRUE(reads(cache, 0, 64));
  const fs::path block = blocks().at(0);
  for (const size_t length : {0, 10, 79, 80, 81}) {
    std::string bytes = read_file(block);
    bytes.resize(length, 'x');
    if (length == 80) bytes[5] ^= 1;
    write_file_atomically(block, bytes);
    num_fetched_ = 0;
    EXPECT_TRUE(reads(cache, 0, 64)) << length;
    EXPECT_EQ(num_fetched_, 1) << length;
  }
}

TEST_F(BlockCacheTest, ItsSizeIsBoundedAndWhatWasUsedStays) {
  object_ = std::string(100'000, 'x');
  BlockCache cache(options());
  for (uint64_t block = 0; block < 1000; ++block) {
    EXPECT_TRUE(reads(cache, block * 64, 64));
    EXPECT_LE(cached_bytes(), options().max_bytes) << block;
    if (block > 10) std::this_thread::sleep_for(std::chrono::microseconds(10));
    EXPECT_TRUE(reads(cache, 0, 64));  // used again and again
  }
  num_fetched_ = 0;
  EXPECT_TRUE(reads(cache, 0, 64));
  EXPECT_EQ(num_fetched_, 0);
  EXPECT_TRUE(reads(cache, 64, 64));  // long not used
  EXPECT_EQ(num_fetched_, 1);
}

TEST_F(BlockCacheTest, WhatAKilledProcessLeftIsRemoved) {
  make_folders(options().folder);
  const fs::path left = options().folder / "1-0.new";
  write_file_atomically(left, "half a block");
  { BlockCache cache(options()); }
  EXPECT_TRUE(is_file(left));  // may be of a process that is writing
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  { BlockCache cache(options()); }
  EXPECT_FALSE(is_file(left));
}

TEST_F(BlockCacheTest, ThreadsFetchABlockOnce) {
  BlockCache cache(options());
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::string text(64, '?');
      cache.read("key", object_.size(), 128, std::as_writable_bytes(std::span(text)),
                 [this](uint64_t from, std::span<std::byte> out) {
                   std::this_thread::sleep_for(std::chrono::milliseconds(50));
                   fetch(from, out);
                 });
      num_right += text == object_.substr(128, 64);
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(num_right, 8);
  EXPECT_EQ(num_fetched_, 1);
}

TEST_F(BlockCacheTest, AFailedFetchIsPassedOnAndLeavesNothing) {
  BlockCache cache(options());
  std::byte byte{};
  EXPECT_THROW(cache.read("key", 1000, 0, std::span(&byte, 1),
                          [](uint64_t, std::span<std::byte>) { throw CommError("gone"); }),
               CommError);
  EXPECT_TRUE(blocks().empty());
}

TEST_F(BlockCacheTest, AFolderThatCannotBeUsedIsRefused) {
  write_file_atomically(folder_.path() / "file", "");
  BlockCacheOptions wrong = options();
  wrong.folder = folder_.path() / "file";
  EXPECT_THROW(BlockCache{wrong}, ConfigError);
  wrong = options();
  wrong.max_bytes = uint64_t{1} << 60;
  EXPECT_THROW(BlockCache{wrong}, ConfigError);
}

TEST_F(BlockCacheTest, ItGoesOnWithoutItsFolder) {
  BlockCache cache(options());
  fs::remove_all(options().folder);
  EXPECT_TRUE(reads(cache, 0, 64));
  EXPECT_TRUE(reads(cache, 0, 64));
  EXPECT_EQ(num_fetched_, 2);
}

}  // namespace
}  // namespace trireme::remote
