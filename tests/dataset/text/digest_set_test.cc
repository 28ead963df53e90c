#include "trireme/dataset/text/digest_set.h"

#include <set>

#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

TEST(DigestSet, HasEachDigestOnce) {
  DigestSet set;
  std::set<Digest> reference;
  // Half of them come again; many share their low bits, and one is zero.
  for (uint64_t i = 0; i < 6'000; ++i) {
    const uint64_t number = i % 3 == 0 ? i / 2 : i;
    const Digest digest{number % 7, (number / 7) << (number % 2 == 0 ? 0 : 40)};
    EXPECT_EQ(set.insert(digest), reference.insert(digest).second) << i;
    EXPECT_EQ(set.size(), reference.size());
  }
  EXPECT_FALSE(set.insert({0, 0}));
  EXPECT_GT(set.size(), 3999U);
  EXPECT_LT(set.size(), 6'000U);
}

}  // namespace
}  // namespace trireme::dataset
