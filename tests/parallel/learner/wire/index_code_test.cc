#include "trireme/parallel/learner/wire/index_code.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

at::Tensor indices_of(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

TEST(IndexCode, ChoosesTheLargestAndTheFirstOfEqualOnes) {
  const at::Tensor x = at::tensor({1.f, -3.f, 2.f, 2.f, -2.f, 0.f, 2.f});
  harness::assert_same_bits(choose_largest(x, 0), indices_of({}), "none");
  harness::assert_same_bits(choose_largest(x, 1), indices_of({1}), "1");
  harness::assert_same_bits(choose_largest(x, 3), indices_of({1, 2, 3}), "3");
  harness::assert_same_bits(choose_largest(x, 5), indices_of({1, 2, 3, 4, 6}), "5");
  harness::assert_same_bits(choose_largest(x, 7), indices_of({0, 1, 2, 3, 4, 5, 6}), "all");
  harness::assert_same_bits(choose_largest(at::zeros({100000}), 3), indices_of({0, 1, 2}), "ties");
}

TEST(IndexCode, DecodesWhatItEncodes) {
  harness::Draw draw(1);
  for (const int64_t size : {1, 2, 7, 64, 1000, 4096}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, size / 64, size / 3, size / 2, size}) {
      std::vector<int64_t> chosen;
      for (int64_t i = 0; i < size; ++i) {
        const int64_t missing = count - static_cast<int64_t>(chosen.size());
        if (draw.below(size - i) < missing) chosen.push_back(i);
      }
      const at::Tensor indices = indices_of(chosen);
      const at::Tensor bytes = encode_indices(indices, size);
      EXPECT_EQ(bytes.numel(), index_bytes(count, size));
      harness::assert_same_bits(decode_indices(bytes, count, size), indices, "indices");
    }
  }
  // Ends of the range, and sizes beyond 32 bits.
  for (const auto& ends : {indices_of({0, 1, 2}), indices_of({997, 998, 999})}) {
    harness::assert_same_bits(decode_indices(encode_indices(ends, 1000), 3, 1000), ends, "ends");
  }
  const at::Tensor far = indices_of({5, int64_t{1} << 33, (int64_t{1} << 34) - 1});
  harness::assert_same_bits(
      decode_indices(encode_indices(far, int64_t{1} << 34), 3, int64_t{1} << 34), far, "far");
}

TEST(IndexCode, TakesAByteForOneOfSixtyFour) {
  EXPECT_EQ(index_bytes(1024, 65536), 1024 * 8 / 8);
  EXPECT_EQ(index_bytes(0, 100), 0);
}

TEST(IndexCode, RefusesDamagedBytes) {
  const at::Tensor indices = indices_of({3, 64, 65, 900});
  const at::Tensor bytes = encode_indices(indices, 1000);
  int refused = 0;
  for (int64_t bit = 0; bit < bytes.numel() * 8; ++bit) {
    const at::Tensor damaged = bytes.clone();
    damaged[bit / 8].bitwise_xor_(1 << (bit % 8));
    try {
      const at::Tensor found = decode_indices(damaged, 4, 1000);
      EXPECT_TRUE(found.diff().gt(0).all().item<bool>());
      EXPECT_TRUE(found.ge(0).logical_and(found.lt(1000)).all().item<bool>());
    } catch (const CommError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 8);  // each bit of the map changes the number of indices
  EXPECT_THROW(decode_indices(at::full_like(bytes, 255), 4, 1000), CommError);
  EXPECT_THROW(decode_indices(at::zeros_like(bytes), 4, 1000), CommError);
}

}  // namespace
}  // namespace trireme::parallel
