#include "trireme/checkpoint/place_bytes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {
namespace {

using Shape = std::vector<int64_t>;

TEST(PlaceBytes, EveryRangeIsCutIntoBlocksThatCoverItInOrder) {
  for (const Shape& shape : {Shape{}, {1}, {7}, {3, 4}, {1, 5}, {2, 3, 4}, {3, 1, 2, 2}}) {
    const at::Tensor numbers = at::arange(c10::multiply_integers(shape)).view(shape);
    for (int64_t first = 0; first <= numbers.numel(); ++first) {
      for (int64_t last = first; last <= numbers.numel(); ++last) {
        int64_t next = first;
        for_each_block(shape, first, last, [&](const mesh::Box& block, int64_t element) {
          at::Tensor part = numbers;
          for (size_t d = 0; d < shape.size(); ++d)
            part = part.narrow(static_cast<int64_t>(d), block.offset[d], block.size[d]);
          EXPECT_EQ(element, next);
          EXPECT_TRUE(part.flatten().equal(at::arange(next, next + part.numel())));
          next += part.numel();
        });
        ASSERT_EQ(next, last) << at::IntArrayRef(shape) << " from " << first;
      }
    }
  }
}

TEST(PlaceBytes, WholeRowsAreOneBlock) {
  int num_blocks = 0;
  for_each_block({6, 3, 5}, 15, 75, [&](const mesh::Box& block, int64_t /*element*/) {
    ++num_blocks;
    EXPECT_EQ(block, (mesh::Box{{1, 0, 0}, {4, 3, 5}}));
  });
  EXPECT_EQ(num_blocks, 1);
}

// A piece of a [9, 8] tensor, in chunks of any length, into a box that meets a part of it.
TEST(PlaceBytes, ChunksOfAnyLengthFillTheBoxTheyMeet) {
  const at::Tensor global = random_tensor("w", {9, 8}, at::kInt);
  const mesh::Box piece{{2, 1}, {6, 6}}, box{{4, 0}, {5, 5}};
  const at::Tensor source = global.narrow(0, 2, 6).narrow(1, 1, 6).contiguous();
  const auto* const data = static_cast<const std::byte*>(source.const_data_ptr());
  at::Tensor expected = at::full({5, 5}, 7, at::kInt);
  expected.narrow(0, 0, 4).narrow(1, 1, 4).copy_(global.narrow(0, 4, 4).narrow(1, 1, 4));
  for (const uint64_t length : {4, 12, 20, 24, 52, 144}) {
    at::Tensor target = at::full({5, 5}, 7, at::kInt);
    for (uint64_t at = 0; at < source.nbytes(); at += length) {
      const uint64_t size = std::min<uint64_t>(length, source.nbytes() - at);
      place_bytes({piece, at::kInt, at, {data + at, size}}, box, target);
    }
    harness::assert_same_bits(target, expected, std::to_string(length));
  }
}

TEST(PlaceBytes, TheTargetMayHaveAnotherDtypeStridesAndAGradient) {
  const at::Tensor source = at::randn({4, 6});
  at::Tensor target = at::zeros({6, 4}, at::kDouble).t();
  target.set_requires_grad(true);
  const mesh::Box box{{0, 0}, {4, 6}};
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(source.const_data_ptr()),
                                         source.nbytes());
  place_bytes({box, at::kFloat, 0, bytes}, box, target);
  EXPECT_TRUE(target.equal(source.to(at::kDouble)));
  EXPECT_TRUE(target.is_leaf());
}

// Rows of a piece of a [9, 8] tensor into boxes that meet a part of it, or nothing.
TEST(PlaceRows, ReplaceThoseOfTheBoxTheyMeet) {
  const at::Tensor global = random_tensor("w", {9, 8}, at::kInt);
  const mesh::Box piece{{2, 1}, {6, 6}};
  const std::vector<int64_t> rows{2, 4, 7};
  const at::Tensor source =
      global.index_select(0, at::tensor(rows, at::kLong)).narrow(1, 1, 6).contiguous();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(source.const_data_ptr()),
                                         source.nbytes());
  for (const mesh::Box& box : std::vector<mesh::Box>{{{0, 0}, {9, 8}},
                                                     {{4, 0}, {5, 5}},
                                                     {{3, 2}, {1, 2}},
                                                     {{7, 6}, {2, 2}},
                                                     {{8, 0}, {1, 8}},
                                                     {{0, 7}, {9, 1}}}) {
    at::Tensor expected = at::full(box.size, 7, at::kInt);
    for (const int64_t row : rows) {
      for (int64_t column = 1; column < 7; ++column) {
        const int64_t r = row - box.offset[0], c = column - box.offset[1];
        if (r >= 0 && r < box.size[0] && c >= 0 && c < box.size[1])
          expected[r][c] = global[row][column];
      }
    }
    const at::Tensor target = at::full(box.size, 7, at::kInt);
    place_rows({piece, at::kInt, rows, bytes}, box, target);
    harness::assert_same_bits(target, expected, "rows");
    const at::Tensor wider = at::full({box.size[1], box.size[0]}, 7, at::kLong).t();
    place_rows({piece, at::kInt, rows, bytes}, box, wider);
    harness::assert_same_bits(wider.to(at::kInt).contiguous(), expected, "rows of another dtype");
  }
}

// A number per row, and rows of several dimensions.
TEST(PlaceRows, HaveAnyNumberOfDimensions) {
  for (const Shape& shape : {Shape{9}, {9, 2, 3}}) {
    const at::Tensor global = random_tensor("w", shape, at::kShort);
    const std::vector<int64_t> rows{0, 5, 8};
    const at::Tensor source = global.index_select(0, at::tensor(rows, at::kLong));
    const at::Tensor target = at::zeros_like(global);
    place_rows({{Shape(shape.size(), 0), shape},
                at::kShort,
                rows,
                {static_cast<const std::byte*>(source.const_data_ptr()), source.nbytes()}},
               {Shape(shape.size(), 0), shape}, target);
    harness::assert_same_bits(target.index_select(0, at::tensor(rows, at::kLong)), source, "rows");
    EXPECT_EQ(target.select(0, 4).count_nonzero().item<int64_t>(), 0);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
