#include "trireme/base/file/digest.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

std::vector<std::byte> counting(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31);
  return bytes;
}

TEST(Digest, EveryFlippedBitChangesIt) {
  for (const size_t count : {1, 16, 100, 1000}) {
    std::vector<std::byte> bytes = counting(count);
    const Digest digest = digest_of(bytes);
    for (size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_NE(digest_of(bytes), digest) << "bit " << bit << " of " << count << " bytes";
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    EXPECT_EQ(digest_of(bytes), digest);
  }
}

// As `xxhsum -H2` prints it.
TEST(Digest, IsTheXxh3OfTheseBytes) {
  EXPECT_EQ(to_text(digest_of(std::span<const std::byte>())), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, ItsTextHasThirtyTwoDigitsAndIsReadBack) {
  const Digest small{0, 5};
  EXPECT_EQ(to_text(small), "00000000000000000000000000000005");
  for (const Digest& digest : {small, digest_of(counting(77)), Digest{~uint64_t{0}, 1}}) {
    EXPECT_EQ(parse_digest(to_text(digest)), digest);
  }
}

TEST(Digest, OtherTextsAreNone) {
  const std::string text = to_text(digest_of(counting(3)));
  for (const std::string& bad : {std::string(), text.substr(1), text + "0", "-" + text.substr(1),
                                 "g" + text.substr(1), "A" + text.substr(1)}) {
    EXPECT_FALSE(parse_digest(bad).has_value()) << bad;
  }
}

TEST(Digest, OfASequenceDependsOnItsOrder) {
  const Digest a = digest_of(counting(1)), b = digest_of(counting(2));
  EXPECT_NE(digest_of(std::vector{a, b}), digest_of(std::vector{b, a}));
  EXPECT_NE(digest_of(std::vector{a}), a);
}

}  // namespace
}  // namespace trireme
