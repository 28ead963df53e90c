#include "trireme/base/io/streamed_file.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = StreamedFile::kBufferBytes;

std::string some_text(size_t num_bytes) {
  std::string text(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 5000);
  return text;
}

fs::path empty_file(const harness::TemporaryFolder& folder) {
  fs::path path = folder / "a";
  std::ofstream(path).close();
  return path;
}

void write(StreamedFile& file, std::string_view text) {
  while (!text.empty()) {
    const std::span<std::byte> room = file.room();
    ASSERT_FALSE(room.empty());
    const size_t count = std::min(room.size(), text.size());
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, count))), room.begin());
    file.advance(count);
    text.remove_prefix(count);
  }
}

TEST(StreamedFile, HasTheBytesInTheirOrder) {
  const harness::TemporaryFolder folder;
  for (const size_t size : {size_t{0}, size_t{1}, kBuffer - 1, kBuffer, kBuffer + 1, 2 * kBuffer,
                            3 * kBuffer + 4095, 5 * kBuffer + 4097}) {
    const std::string text = some_text(size);
    const fs::path path = empty_file(folder);
    StreamedFile file(path);
    write(file, text);
    file.flush();
    EXPECT_TRUE(read_file(path) == text) << size;
  }
}

TEST(StreamedFile, GoesOnBehindASyncAtAnyByte) {
  const harness::TemporaryFolder folder;
  const std::string text = some_text(4 * kBuffer + 12345);
  for (const size_t step : {kBuffer / 3 + 7, kBuffer + 4096, 2 * kBuffer + 1}) {
    const fs::path path = empty_file(folder);
    StreamedFile file(path);
    for (size_t at = 0; at < text.size(); at += step) {
      write(file, std::string_view(text).substr(at, step));
      file.sync();
      EXPECT_TRUE(read_file(path) == text.substr(0, at + step)) << step << " at " << at;
    }
  }
}

TEST(StreamedFile, GoesOnBehindWhatAnotherWrote) {
  const harness::TemporaryFolder folder;
  const std::string text = some_text(3 * kBuffer);
  for (const size_t before : {size_t{1}, size_t{4096}, kBuffer + 4095}) {
    const fs::path path = empty_file(folder);
    std::ofstream(path) << text.substr(0, before);
    StreamedFile file(path, before);
    write(file, std::string_view(text).substr(before));
    file.flush();
    EXPECT_TRUE(read_file(path) == text) << before;
  }
  EXPECT_THROW(StreamedFile(empty_file(folder), 5000), Error);  // it has fewer
}

TEST(StreamedFile, SaysWhyTheDiskTakesNoMore) {
  const harness::TemporaryFolder folder;
  for (const size_t limit : {size_t{1000}, kBuffer + 1000, 2 * kBuffer}) {
    const fs::path path = empty_file(folder);
    StreamedFile file(path);
    const harness::FileSizeLimit limited(limit);
    const std::string error = harness::message_of<Error>([&] {
      write(file, some_text(limit + 1000));
      file.flush();
    });
    EXPECT_EQ(error, "cannot write " + path.string() + ": File too large");
    EXPECT_EQ(fs::file_size(path), limit);
  }
  EXPECT_THROW(StreamedFile(folder / "missing"), Error);
}

TEST(StreamedFile, ValuesOfEachWidthFindRoomForWholeOnes) {
  const harness::TemporaryFolder folder;
  for (const size_t width : {1, 2, 4, 8}) {
    const fs::path path = empty_file(folder);
    StreamedFile file(path);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(file.room().size() % width, 0U);
      file.advance(width);
      file.flush();
    }
    EXPECT_THROW(file.advance(kBuffer), InternalError);
  }
}

}  // namespace
}  // namespace trireme
