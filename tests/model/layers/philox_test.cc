#include "trireme/model/layers/philox.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::model {
namespace {

TEST(Philox, IsRandomBitsOfEachIndex) {
  const RandomKey key = random_key(42, "words");
  const at::Tensor indices =
      at::tensor({int64_t{0}, int64_t{5}, int64_t{0xFFFF'FFFF}, int64_t{1} << 40, INT64_MAX})
          .view({1, 5});
  const at::Tensor words = random_words(key, indices);
  ASSERT_EQ(words.sizes(), at::IntArrayRef({1, 5, 4}));
  for (int64_t i = 0; i < 5; ++i) {
    const auto bits = random_bits(key, static_cast<uint64_t>(indices[0][i].item<int64_t>()));
    for (int64_t k = 0; k < 4; ++k) {
      EXPECT_EQ(words[0][i][k].item<int64_t>(), bits[static_cast<size_t>(k)]) << i << " " << k;
    }
  }
}

TEST(Philox, RowsHaveTheirWordsHoweverTheyAreDrawn) {
  const RandomKey key = random_key(42, "rows");
  const at::Tensor rows = at::tensor({int64_t{0}, int64_t{9}, int64_t{1} << 33});
  for (const int64_t width : {1, 4, 10}) {
    const at::Tensor words = words_of_rows(key, rows, width);
    ASSERT_EQ(words.sizes(), at::IntArrayRef({3, width}));
    for_each_row(key, rows, width, [&](int64_t row, const uint32_t* drawn) {
      for (int64_t i = 0; i < width; ++i) EXPECT_EQ(words[row][i].item<int64_t>(), drawn[i]);
    });
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor uniform = uniform_rows(key, rows, width, dtype);
      EXPECT_TRUE(uniform.eq(words.__rshift__(8).to(dtype) * 0x1p-24).all().item<bool>());
      EXPECT_LT(uniform.max().item<double>(), 1);
    }
  }
}

}  // namespace
}  // namespace trireme::model
