#include "trireme/checkpoint/chunk/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::checkpoint {
namespace {

std::vector<std::byte> block(size_t num_bytes, int seed) {
  std::vector<std::byte> bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i)
    bytes[i] = static_cast<std::byte>((i * 7 + i / 999 + static_cast<size_t>(seed)) % 251);
  return bytes;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(DataFile, HasItsHeadAndThenWhatWasAppended) {
  const harness::TemporaryFolder folder;
  for (const std::vector<size_t>& sizes : {std::vector<size_t>{},
                                           {1},
                                           {4096},
                                           {4095, 2, 4096},
                                           {20 << 20, 3},
                                           {0, 5, 0},
                                           {8 << 20, 8 << 20, 1}}) {
    for (const bool knows_size : {true, false}) {
      uint64_t total = 0;
      for (const size_t size : sizes) total += size;
      const std::string head(8192, 'h');
      DataFile file(folder / "data", head.size(), knows_size ? std::optional(total) : std::nullopt);
      std::string expected = head;
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<std::byte> bytes = block(sizes[i], static_cast<int>(i));
        EXPECT_EQ(file.append(bytes), expected.size() - head.size());
        expected += text_of(bytes);
        std::ranges::fill(bytes, std::byte{0});  // they belong to the caller again
      }
      file.finish(head, /*fsync=*/true);
      EXPECT_EQ(file.num_bytes(), expected.size());
      EXPECT_EQ(read_file(folder / "data"), expected);
    }
  }
}

TEST(DataFile, HasTheSameBytesBehindSmallBuffers) {
  const harness::TemporaryFolder folder;
  const std::vector<std::byte> bytes = block(3 << 20, 1);
  const std::string head(4096, 'h');
  DataFile file(folder / "data", head.size(), std::nullopt, /*buffer_bytes=*/8192);
  for (size_t at = 0; at < bytes.size(); at += 1 << 20)
    file.append(std::span(bytes).subspan(at, 1 << 20));
  file.finish(head, false);
  EXPECT_EQ(read_file(folder / "data"), head + text_of(bytes));
}

TEST(DataFile, ReservingMoreThanIsWrittenLeavesNothing) {
  const harness::TemporaryFolder folder;
  DataFile file(folder / "data", 4096, 10 << 20);
  file.append(block(10, 0));
  file.finish(std::string(4096, ' '), false);
  EXPECT_EQ(read_file(folder / "data").size(), 4106u);
}

TEST(DataFile, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(harness::message_of<Error>([] { DataFile("/none/data", 4096, 0); }),
              ::testing::HasSubstr("cannot create /none/data: No such file or directory"));
}

}  // namespace
}  // namespace trireme::checkpoint
