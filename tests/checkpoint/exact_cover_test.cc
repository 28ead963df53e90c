#include "trireme/checkpoint/tensor_boxes.h"

#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"

namespace trireme::checkpoint {
namespace {

using harness::Draw;
using mesh::Box;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

constexpr int64_t kHuge = int64_t{1} << 32;

// Calls visit(element) for each element of the box.
template <typename Visit>
void for_each_element(const Box& box, Visit visit) {
  if (std::ranges::count(box.size, 0) > 0) return;
  Shape element = box.offset;
  for (;;) {
    visit(element);
    size_t d = element.size();
    while (d > 0 && ++element[d - 1] == box.offset[d - 1] + box.size[d - 1]) {
      element[d - 1] = box.offset[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

bool is_proper(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 1 || box.offset[d] + box.size[d] > shape[d])
      return false;
  }
  return true;
}

// The same question answered element by element.
bool covers_once(const Shape& shape, const std::vector<Box>& boxes) {
  std::map<Shape, int> count;
  for_each_element({Shape(shape.size(), 0), shape}, [&](const Shape& at) { count[at] = 0; });
  for (const Box& box : boxes) {
    if (!is_proper(box, shape)) return false;
    for_each_element(box, [&](const Shape& at) { ++count[at]; });
  }
  return std::ranges::all_of(count, [](const auto& each) { return each.second == 1; });
}

// Cuts the box into parts, each again.
void cut(const Box& box, int depth, Draw& draw, std::vector<Box>& parts) {
  const size_t d = box.size.empty() ? 0 : static_cast<size_t>(draw.below(std::ssize(box.size)));
  if (depth == 0 || box.size.empty() || box.size[d] < 2) {
    parts.push_back(box);
    return;
  }
  Box low = box, high = box;
  low.size[d] = 1 + draw.below(box.size[d] - 1);
  high.offset[d] += low.size[d];
  high.size[d] -= low.size[d];
  cut(low, depth - 1, draw, parts);
  cut(high, depth - 1, draw, parts);
}

// One of the mistakes that a writer may make.
void spoil(std::vector<Box>& boxes, Draw& draw) {
  Box& box = boxes[static_cast<size_t>(draw.below(std::ssize(boxes)))];
  const auto dims = std::ssize(box.size);
  const auto d = static_cast<size_t>(dims == 0 ? 0 : draw.below(dims));
  switch (draw.below(6)) {
    case 0: boxes.push_back(Box(box)); return;
    case 1:
      std::swap(box, boxes.back());
      boxes.pop_back();
      return;
    case 2:
      if (dims > 0) box.offset[d] += draw.below(3) - 1;
      return;
    case 3:
      if (dims > 0) box.size[d] += draw.below(3) - 1;
      return;
    case 4: box = boxes[static_cast<size_t>(draw.below(std::ssize(boxes)))]; return;
    default: std::swap(box, boxes.front()); return;  // no mistake
  }
}

TEST(ExactCover, AgreesWithCountingTheElements) {
  std::map<bool, int> answers;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Draw draw(seed);
    Shape shape(static_cast<size_t>(draw.below(5)));
    for (int64_t& length : shape) length = draw.below(12) == 0 ? 0 : 1 + draw.below(4);
    std::vector<Box> boxes;
    const Box whole{Shape(shape.size(), 0), shape};
    if (std::ranges::count(shape, 0) == 0 || draw.below(4) == 0) {
      cut(whole, static_cast<int>(draw.below(5)), draw, boxes);
    }
    for (int64_t i = draw.below(4); i > 0 && !boxes.empty(); --i) spoil(boxes, draw);
    const bool expected = covers_once(shape, boxes);
    ++answers[expected];
    ASSERT_EQ(cover_error(shape, boxes).empty(), expected)
        << "seed " << seed << ": " << cover_error(shape, boxes);
  }
  EXPECT_GT(answers[true], 1000);
  EXPECT_GT(answers[false], 1000);
}

TEST(ExactCover, NamesTheFirstElementThatIsHeldWrongly) {
  EXPECT_EQ(cover_error(Shape{3, 4}, {{{0, 0}, {2, 4}}}),
            "element [2, 0] lies in 0 pieces, expected 1");
  // As many elements as the tensor has, some twice and some not at all.
  EXPECT_EQ(cover_error(Shape{4}, {{{0}, {2}}, {{1}, {2}}}),
            "element [1] lies in 2 pieces, expected 1");
  EXPECT_EQ(cover_error(Shape{}, {{{}, {}}, {{}, {}}, {{}, {}}}),
            "element [] lies in 3 pieces, expected 1");
  EXPECT_EQ(cover_error(Shape{}, {}), "element [] lies in 0 pieces, expected 1");
}

TEST(ExactCover, HugeShapesAreCheckedWithoutOverflow) {
  const Shape shape{kHuge, kHuge / 2};  // 2^63 elements are counted as none in 64 bits
  EXPECT_EQ(cover_error(shape, {}), "element [0, 0] lies in 0 pieces, expected 1");
  EXPECT_EQ(cover_error(shape, {{{0, 0}, {kHuge, kHuge / 2}}}), "");
  EXPECT_EQ(cover_error(shape, {{{0, 0}, {kHuge, 1}}, {{0, 1}, {kHuge, kHuge / 2 - 1}}}), "");
  EXPECT_EQ(cover_error(shape, {{{0, 0}, {kHuge, 1}}, {{1, 1}, {kHuge - 1, kHuge / 2 - 1}}}),
            "element [0, 1] lies in 0 pieces, expected 1");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(cover_error(Shape{kMax}, {{{kMax}, {kMax}}}), HasSubstr("reaches outside"));
}

TEST(ExactCover, ThousandsOfPiecesOfAllDimensionsAreChecked) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      for (int64_t k = 0; k < 16; ++k) boxes.push_back({{i, 2 * j, 3 * k}, {1, 2, 3}});
    }
  }
  EXPECT_EQ(cover_error(Shape{16, 32, 48}, boxes), "");
  ++boxes[2000].offset[1];
  EXPECT_THAT(cover_error(Shape{16, 32, 48}, boxes), HasSubstr("expected 1"));
}

TEST(ExactCover, MorePiecesThanAreWorthCheckingAreRefused) {
  const std::vector<Box> boxes(2, {Shape(40, 0), Shape(40, 1)});
  EXPECT_THAT(cover_error(Shape(40, 2), boxes), HasSubstr("2 pieces cut along 40 dimensions"));
}

TEST(ExactCover, BytesThatDoNotFitAreNothing) {
  EXPECT_EQ(num_bytes_of(Shape{}, 4), 4);
  EXPECT_EQ(num_bytes_of(Shape{3, 0, 5}, 4), 0);
  EXPECT_EQ(num_bytes_of(Shape{kHuge, kHuge}, 1), std::nullopt);
  EXPECT_EQ(num_bytes_of(Shape{kHuge, kHuge / 4}, 1), kHuge * (kHuge / 4));
  EXPECT_EQ(num_bytes_of(Shape{kHuge, kHuge / 4}, 2), std::nullopt);
  EXPECT_EQ(num_bytes_of(Shape{0, kHuge, kHuge}, 1), std::nullopt);
  EXPECT_EQ(num_bytes_of(Shape{-1}, 1), std::nullopt);
  EXPECT_EQ(num_bytes_of(Shape(64, 1), 8), 8);
  EXPECT_EQ(num_bytes_of(Shape(65, 1), 8), std::nullopt);
}

TEST(NumCorners, IsBoundedForAnyShape) {
  EXPECT_EQ(num_corners(Shape{6, 4}, {{{0, 0}, {3, 4}}, {{3, 0}, {3, 4}}}), 4u);
  EXPECT_EQ(num_corners(Shape{6, 4}, {{{0, 0}, {6, 4}}}), 1u);
  EXPECT_EQ(num_corners(Shape{6}, {{{0, 0}, {6, 4}}}), 0u);
  for (const size_t dims : {63u, 64u, 65u, 1000u}) {
    const mesh::Box half{Shape(dims, 0), Shape(dims, 1)};
    EXPECT_EQ(num_corners(Shape(dims, 2), {half, half}), std::numeric_limits<size_t>::max())
        << dims;
  }
}

TEST(ShownShape, IsNeverLong) {
  EXPECT_EQ(shown_shape(Shape{3, 4}), "[3, 4]");
  EXPECT_EQ(shown_shape(Shape{}), "[]");
  EXPECT_LT(cover_error(Shape{2}, {{Shape(100'000, 3), Shape(100'000, 3)}}).size(), 1000);
}

}  // namespace
}  // namespace trireme::checkpoint
