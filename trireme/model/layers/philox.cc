#include "trireme/model/layers/philox.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

namespace trireme::model {

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

at::Tensor words_of_rows(RandomKey key, const at::Tensor& rows_S, int64_t width) {
  const int64_t blocks = (width + 3) / 4;
  const at::Tensor index_SB = rows_S.unsqueeze(1) * blocks + at::arange(blocks, rows_S.options());
  return random_words(key, index_SB).flatten(1).narrow(1, 0, width);
}

at::Tensor uniform_rows(RandomKey key, const at::Tensor& rows_S, int64_t width,
                        at::ScalarType dtype) {
  if (!rows_S.is_cpu()) return words_of_rows(key, rows_S, width).__rshift__(8).to(dtype) * 0x1p-24;
  const at::Tensor result = at::empty({rows_S.numel(), width}, dtype);
  AT_DISPATCH_FLOATING_TYPES(dtype, "uniform_rows", [&] {
    auto* const data = result.mutable_data_ptr<scalar_t>();
    for_each_row(key, rows_S, width, [&](int64_t row, const uint32_t* words) {
      for (int64_t i = 0; i < width; ++i) {
        data[row * width + i] = static_cast<scalar_t>(words[i] >> 8) * scalar_t{0x1p-24};
      }
    });
  });
  return result;
}

}  // namespace trireme::model
