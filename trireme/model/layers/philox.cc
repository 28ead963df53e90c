#include "trireme/model/layers/philox.h"

#include <ATen/ATen.h>

namespace trireme::model::inline internal {

// The product of two words has 64 bits; int64 wraps around and keeps them all.
at::Tensor random_words(RandomKey key, const at::Tensor& indices) {
  constexpr int64_t kWord = 0xffffffff;
  const auto high = [](const at::Tensor& product) { return product.__rshift__(32) & kWord; };
  at::Tensor a = at::zeros_like(indices), b = a;
  at::Tensor c = indices & kWord, d = high(indices);
  uint32_t key_low = static_cast<uint32_t>(key.value);
  uint32_t key_high = static_cast<uint32_t>(key.value >> 32);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor left = a * int64_t{0xD2511F53};
    const at::Tensor right = c * int64_t{0xCD9E8D57};
    a = high(right) ^ b ^ static_cast<int64_t>(key_low);
    b = right & kWord;
    c = high(left) ^ d ^ static_cast<int64_t>(key_high);
    d = left & kWord;
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return at::stack({a, b, c, d}, -1);
}

}  // namespace trireme::model::inline internal
