#include "trireme/dataset/file/text_lines.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

// "a\tb\nc\n", as Python's gzip.compress(text, mtime=0) has it.
const std::string kPart(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xe4\x4c\xe2\x4a\xe6\x02\x00\x09\x74\xc7\x4d\x06"
    "\x00\x00\x00",
    26);
constexpr const char* kText = "a\tb\nc\n";

// All of a file that comes and goes in pieces of so many bytes.
std::string text_of(const std::string& file, size_t in, size_t out) {
  size_t begin = 0;
  GzipText gzip("day.gz", [&](std::span<std::byte> piece) {
    const size_t count = std::min({piece.size(), in, file.size() - begin});
    std::memcpy(piece.data(), file.data() + begin, count);
    begin += count;
    return count;
  });
  std::string text, piece(out, '\0');
  while (const size_t count = gzip.read(piece)) {
    text.append(piece, 0, count);
    if (count < out) break;
  }
  return text;
}

TEST(GzipText, IsTheSameInPiecesOfAnySize) {
  if (!reads_gzip()) GTEST_SKIP() << "built without zlib";
  for (const size_t in : {1, 5, 100}) {
    for (const size_t out : {1, 4, 100}) {
      EXPECT_EQ(text_of(kPart, in, out), kText);
      EXPECT_EQ(text_of(kPart + kPart, in, out), std::string(kText) + kText);
    }
  }
}

TEST(GzipText, ThatIsCutOrDamagedIsRefused) {
  if (!reads_gzip()) GTEST_SKIP() << "built without zlib";
  const auto error_of = [](const std::string& file) {
    return harness::message_of<ConfigError>([&] { text_of(file, 100, 100); });
  };
  for (size_t length = 1; length < kPart.size(); ++length) {
    EXPECT_NE(error_of(kPart.substr(0, length)).find("day.gz ends in the middle"),
              std::string::npos)
        << length;
  }
  for (size_t i = 10; i < kPart.size(); ++i) {  // after the header
    std::string damaged = kPart;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    EXPECT_NE(error_of(damaged), "") << i;
  }
}

}  // namespace
}  // namespace trireme::dataset
