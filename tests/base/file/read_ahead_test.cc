#include "trireme/base/file/read_ahead.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Bytes in memory that count how they are read.
class Counted : public ByteSource {
 public:
  explicit Counted(size_t size) : bytes_(size) {
    for (size_t i = 0; i < size; ++i) bytes_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  std::string name() const override { return "counted"; }
  uint64_t num_bytes() const override { return bytes_.size(); }
  std::string version() const override { return "v1"; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) throw Error("beyond");
    if (fails) throw CommError("no answer");
    const std::lock_guard lock(mutex_);
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    begins.insert(offset);
    num_read += out.size();
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  std::atomic<bool> fails = false;
  mutable std::multiset<uint64_t> begins;
  mutable size_t num_read = 0;

 private:
  std::vector<std::byte> bytes_;
  mutable std::mutex mutex_;
};

TEST(ReadAhead, HasTheSameBytesAtAnyPlace) {
  std::mt19937 random(1);
  for (const size_t size : {0, 1, 99, 100, 101, 5000}) {
    const auto source = std::make_shared<Counted>(size);
    const auto file = read_ahead(source, {.block_bytes = 100, .num_ahead = 2, .num_kept = 4});
    EXPECT_EQ(file->name(), "counted");
    EXPECT_EQ(file->version(), "v1");
    EXPECT_EQ(file->num_bytes(), size);
    for (int i = 0; i < 200; ++i) {
      const size_t begin = random() % (size + 1), count = random() % (size - begin + 1);
      std::vector<std::byte> out(count);
      file->read(begin, out);
      ASSERT_EQ(std::memcmp(out.data(), source->bytes().data() + begin, count), 0);
    }
    std::byte more[1];
    EXPECT_THROW(file->read(size, more), Error);
  }
}

TEST(ReadAhead, ReadsEachBlockOnceFromFrontToBack) {
  const auto source = std::make_shared<Counted>(10'050);
  std::vector<std::byte> out;
  {
    const auto file = read_ahead(source, {.block_bytes = 100, .num_ahead = 3, .num_kept = 5});
    for (size_t at = 0; at < source->bytes().size(); at += 30) {
      std::byte piece[30];
      const size_t count = std::min<size_t>(30, source->bytes().size() - at);
      file->read(at, std::span(piece).first(count));
      out.insert(out.end(), piece, piece + count);
    }
  }
  EXPECT_EQ(out, source->bytes());
  EXPECT_EQ(source->begins.size(), 101U);
  EXPECT_EQ(source->num_read, 10'050U);
}

TEST(ReadAhead, FetchesWhatFollowsAndNothingOutsideOfItsPart) {
  const auto source = std::make_shared<Counted>(10'000);
  std::byte piece[10];
  {
    const auto file = read_ahead(
        source, {.begin = 1000, .end = 1350, .block_bytes = 100, .num_ahead = 8, .num_kept = 9});
    file->read(1005, piece);
  }
  EXPECT_EQ(source->begins, (std::multiset<uint64_t>{1000, 1100, 1200, 1300}));
  EXPECT_EQ(source->num_read, 350U);
  {
    const auto file = read_ahead(source, {.begin = 1000, .block_bytes = 100, .num_ahead = 8});
    file->read(5000, piece);  // not where the last one ended: nothing follows it
    file->read(20, piece);    // outside, but it is there
  }
  EXPECT_EQ(source->begins.count(5000), 1U);
  EXPECT_EQ(source->num_read, 350U + 100U + 10U);
}

TEST(ReadAhead, PassesErrorsOnAndTriesAgain) {
  const auto source = std::make_shared<Counted>(1000);
  const auto file = read_ahead(source, {.block_bytes = 100, .num_ahead = 2, .num_kept = 4});
  std::byte piece[10];
  source->fails = true;
  EXPECT_THROW(file->read(0, piece), CommError);
  source->fails = false;
  EXPECT_NO_THROW(file->read(0, piece));
  EXPECT_EQ(piece[3], source->bytes()[3]);
}

}  // namespace
}  // namespace trireme
