#include "trireme/base/random/random.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(FillRandomWords, IsRandomBitsOfEachIndex) {
  const RandomKey key = random_key(42, "words");
  for (const uint64_t first : {uint64_t{0}, uint64_t{7}, uint64_t{0xFFFF'FFFA}, ~uint64_t{20}}) {
    for (const size_t size : {0, 1, 3, 4, 5, 63, 64, 67, 130}) {
      std::vector<uint32_t> words(size);
      fill_random_words(key, first, words);
      for (size_t i = 0; i < size; ++i) {
        ASSERT_EQ(words[i], random_bits(key, first + i / 4)[i % 4]) << first << " + " << i;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
