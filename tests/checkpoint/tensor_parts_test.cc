#include "trireme/checkpoint/tensor_boxes.h"

#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using Shape = std::vector<int64_t>;

TEST(TensorParts, HaveAllElementsInTheirOrder) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{0}, Shape{7}, Shape{3, 0, 2}, Shape{5, 3}, Shape{1, 1, 17},
        Shape{4, 1, 3}, Shape{2, 3, 5, 7}, Shape{6, 2, 2, 1}}) {
    const at::Tensor whole = at::arange(c10::multiply_integers(shape)).view(shape);
    for (const uint64_t most : {1, 8, 16, 24, 56, 64, 100, 1000, 10000}) {
      const TensorParts parts(shape, 8, most);
      ASSERT_GE(parts.size(), 1);
      int64_t next = 0;
      for (int64_t i = 0; i < parts.size(); ++i) {
        const at::Tensor part = view_box(whole, parts.at(i)).contiguous();
        EXPECT_LE(part.nbytes(), std::max<uint64_t>(most, 8));
        EXPECT_TRUE(part.flatten().equal(at::arange(next, next + part.numel())));
        next += part.numel();
      }
      EXPECT_EQ(next, whole.numel());
    }
  }
}

TEST(TensorParts, AreNotMoreThanTwiceAsManyAsNeeded) {
  const TensorParts parts({1000, 3, 11}, 4, 64);
  EXPECT_LE(parts.size(), 2 * (1000 * 3 * 11 * 4) / 64);
}

TEST(TensorParts, BeginWhereChunksDo) {
  const Shape shape{100'000, 99};  // of whose rows a chunk has 2647 and 16 MiB 42366
  const TensorParts parts(shape, 4);
  ASSERT_EQ(parts.size(), 3);
  EXPECT_THAT(parts.at(1).offset, ElementsAre(16 * 2647, 0));
  EXPECT_EQ(cut_into_chunks({{0, 0}, shape}, 4)[0], 2647 * 99 * 4);
}

TEST(TensorParts, OfAnySizeTakeNoMemory) {
  const int64_t rows = int64_t{1} << 40;
  const TensorParts parts({rows, 4, 1 << 18}, 1);
  EXPECT_EQ(parts.size(), rows / 16);
  EXPECT_THAT(parts.at(parts.size() - 1).offset, ElementsAre(rows - 16, 0, 0));
}

}  // namespace
}  // namespace trireme::checkpoint
