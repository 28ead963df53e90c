#include "trireme/base/random/random_words.h"

#include <algorithm>

#include "trireme/base/machine/multiversion.h"

namespace trireme::inline internal {
namespace {

// Philox4x32-10 of `blocks` consecutive indices. at::Philox4_32, which random_bits() uses, keeps
// the index in the upper half of its counter.
TRIREME_MULTIVERSION void fill_blocks(uint64_t key, uint64_t first_index, uint32_t* words,
                                      int64_t blocks) {
#pragma GCC ivdep
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    uint32_t a = 0, b = 0, c = static_cast<uint32_t>(index), d = static_cast<uint32_t>(index >> 32);
    uint32_t key_low = static_cast<uint32_t>(key), key_high = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xD2511F53} * a;
      const uint64_t right = uint64_t{0xCD9E8D57} * c;
      a = static_cast<uint32_t>(right >> 32) ^ b ^ key_low;
      b = static_cast<uint32_t>(right);
      c = static_cast<uint32_t>(left >> 32) ^ d ^ key_high;
      d = static_cast<uint32_t>(left);
      key_low += 0x9E3779B9;
      key_high += 0xBB67AE85;
    }
    words[4 * i] = a;
    words[4 * i + 1] = b;
    words[4 * i + 2] = c;
    words[4 * i + 3] = d;
  }
}

}  // namespace

void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words) {
  const size_t blocks = words.size() / 4;
  fill_blocks(key.value, first_index, words.data(), static_cast<int64_t>(blocks));
  const std::span<uint32_t> rest = words.subspan(4 * blocks);
  if (rest.empty()) return;
  const auto last = random_bits(key, first_index + blocks);
  std::copy_n(last.begin(), rest.size(), rest.begin());
}

}  // namespace trireme::inline internal
