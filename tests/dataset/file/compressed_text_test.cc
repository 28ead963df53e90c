#include "trireme/dataset/file/compressed_text.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr const char* kText = "a\tb\nc\n";

struct Packed {
  const char* compression;
  std::string part;      // of kText
  size_t header_bytes;   // which hold no check
  std::string repeated;  // 5000 times "x"
};

const Packed kPacked[] = {
    // As Python's gzip.compress(text, mtime=0) has it.
    {"gzip",
     std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xe4\x4c\xe2\x4a\xe6\x02\x00\x09\x74"
                 "\xc7\x4d\x06\x00\x00\x00",
                 26),
     10,
     std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xed\xc1\x31\x01\x00\x00\x00\xc2\xa0"
                 "\xda\x8b\x6f\x0a\x3f\xa0\x00\x00\x00\x00\x80\xb7\x01\x26\xf0\xdb\x00\x88\x13\x00"
                 "\x00",
                 40)},
    // As ZSTD_compress2() makes it, the first with ZSTD_c_checksumFlag.
    {"zstd",
     std::string("\x28\xb5\x2f\xfd\x24\x06\x31\x00\x00\x61\x09\x62\x0a\x63\x0a\x02\xf5\x77\xba",
                 19),
     6,
     std::string("\x28\xb5\x2f\xfd\x60\x88\x12\x4d\x00\x00\x10\x78\x78\x01\x00\x83\xd3\x03\x2c",
                 19)}};

// All of a file that comes and goes in pieces of so many bytes.
std::string text_of(const char* compression, const std::string& file, size_t in, size_t out) {
  size_t begin = 0;
  CompressedText packed(compression, "day.packed", [&](std::span<std::byte> piece) {
    const size_t count = std::min({piece.size(), in, file.size() - begin});
    std::memcpy(piece.data(), file.data() + begin, count);
    begin += count;
    return count;
  });
  std::string text, piece(out, '\0');
  while (const size_t count = packed.read(piece)) {
    text.append(piece, 0, count);
    if (count < out) break;
  }
  EXPECT_EQ(packed.read(piece), 0U) << "at its end";
  return text;
}

std::string error_of(const char* compression, const std::string& file) {
  return harness::message_of<ConfigError>([&] { text_of(compression, file, 100, 100); });
}

TEST(CompressedText, IsTheSameInPiecesOfAnySize) {
  for (const auto& [compression, part, header, repeated] : kPacked) {
    if (!reads_compression(compression)) continue;
    for (const size_t in : {1, 5, 100}) {
      for (const size_t out : {1, 4, 100, 10000}) {
        EXPECT_EQ(text_of(compression, part, in, out), kText);
        EXPECT_EQ(text_of(compression, part + part, in, out), std::string(kText) + kText);
        EXPECT_EQ(text_of(compression, repeated, in, out), std::string(5000, 'x'));
      }
    }
  }
}

TEST(CompressedText, ThatIsCutOrDamagedIsRefused) {
  for (const auto& [compression, part, header, repeated] : kPacked) {
    if (!reads_compression(compression)) continue;
    for (size_t length = 1; length < part.size(); ++length) {
      EXPECT_NE(error_of(compression, part.substr(0, length)).find("day.packed ends in the middle"),
                std::string::npos)
          << compression << " " << length;
    }
    for (size_t i = header; i < part.size(); ++i) {
      std::string damaged = part;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      EXPECT_NE(error_of(compression, damaged), "") << compression << " " << i;
    }
    EXPECT_NE(error_of(compression, part + "rest").find("day.packed"), std::string::npos);
  }
}

TEST(CompressedText, OfZstdHasABoundedWindow) {
  if (!reads_compression("zstd")) GTEST_SKIP() << "built without zstd";
  // A frame of an unknown length, with a window of 2^exponent bytes and one raw block, "abc".
  const auto frame = [](int exponent) {
    return concat(std::string("\x28\xb5\x2f\xfd\x00", 5), static_cast<char>((exponent - 10) << 3),
                  std::string("\x19\x00\x00", 3), "abc");
  };
  EXPECT_EQ(text_of("zstd", frame(27), 100, 100), "abc");
  const std::string refusal = error_of("zstd", frame(28));
  EXPECT_NE(refusal.find("128 MiB"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--long=27"), std::string::npos) << refusal;
}

TEST(CompressedText, NamesWhatTheBuildReads) {
  EXPECT_FALSE(reads_compression("bzip2"));
  EXPECT_EQ(readable_compressions().find("zstd") != std::string::npos, reads_compression("zstd"));
  EXPECT_EQ(readable_compressions().find("gzip") != std::string::npos, reads_compression("gzip"));
}

}  // namespace
}  // namespace trireme::dataset
