#include "trireme/checkpoint/chunk/codec.h"

#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> weights(size_t count) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<std::byte> decoded(const Encoded& encoded, std::span<const std::byte> raw,
                               size_t width) {
  std::vector<std::byte> out(raw.size());
  const auto stored =
      encoded.codec == Codec::kRaw ? raw : std::span<const std::byte>(encoded.bytes);
  EXPECT_TRUE(decode(encoded.codec, stored, width, out));
  return out;
}

TEST(Codec, NamesAreReadBack) {
  for (const Codec codec : {Codec::kRaw, Codec::kZstd, Codec::kZstdPlanes})
    EXPECT_EQ(parse_codec(name_of(codec)), codec);
  EXPECT_FALSE(parse_codec("lz4").has_value());
  EXPECT_FALSE(parse_codec("").has_value());
}

TEST(Codec, RawBytesOfAnotherLengthAreRefused) {
  const std::vector<std::byte> bytes(8);
  std::vector<std::byte> out(7);
  EXPECT_FALSE(decode(Codec::kRaw, bytes, 1, out));
}

TEST(Codec, WithoutTheLibraryCompressionIsRefused) {
  if (has_zstd())
    GTEST_SUCCEED();
  else
    EXPECT_THROW(compress(std::vector<std::byte>(100), 1), ConfigError);
}

TEST(Zstd, FloatsAreSmallerInPlanesAndComeBack) {
  ASSERT_TRUE(has_zstd()) << "built without libzstd-dev, which tools/setup.sh installs";
  const std::vector<std::byte> raw = bytes_of(weights(100'000));
  const Encoded encoded = compress(raw, sizeof(float));
  EXPECT_EQ(encoded.codec, Codec::kZstdPlanes);
  EXPECT_LT(encoded.bytes.size(), raw.size() * 31 / 32);
  EXPECT_EQ(decoded(encoded, raw, sizeof(float)), raw);
}

TEST(Zstd, NoiseStaysRawAndZerosAlmostVanish) {
  std::mt19937 engine(2);
  std::vector<std::byte> noise(50'000), zeros(1 << 20);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(engine());
  EXPECT_EQ(compress(noise, 4).codec, Codec::kRaw);
  const Encoded encoded = compress(zeros, 4);
  EXPECT_LT(encoded.bytes.size(), 1000u);
  EXPECT_EQ(decoded(encoded, zeros, 4), zeros);
}

TEST(Zstd, EveryWidthAndSmallSizesComeBack) {
  for (const size_t width : {1, 2, 4, 8}) {
    for (const size_t count : {1, 2, 3, 100, 10'000}) {
      std::vector<std::byte> raw(width * count);
      for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i / 3);
      EXPECT_EQ(decoded(compress(raw, width), raw, width), raw) << width << " x " << count;
    }
  }
}

// Of damaged or lying input decode() says so; it writes nothing beyond its output.
TEST(Zstd, DamageAndOtherSizesAreRefused) {
  const std::vector<std::byte> raw(4096, std::byte{7});
  const Encoded encoded = compress(raw, 4);
  for (const size_t size : {0, 4, 4092, 4100, 1 << 20}) {
    std::vector<std::byte> out(size);
    EXPECT_FALSE(decode(encoded.codec, encoded.bytes, 4, out)) << size;
  }
  std::vector<std::byte> out(raw.size());
  for (size_t length = 0; length < encoded.bytes.size(); ++length)
    EXPECT_FALSE(decode(encoded.codec, std::span(encoded.bytes).first(length), 4, out)) << length;
  for (size_t bit = 0; bit < 8 * encoded.bytes.size(); ++bit) {
    std::vector<std::byte> damaged = encoded.bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    decode(encoded.codec, damaged, 4, out);  // right or wrong, but within its bounds
  }
}

}  // namespace
}  // namespace trireme::checkpoint
