#include "trireme/parallel/embedding/rows/row_memory.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kRows = 301, kWidth = 5;

TEST(InitialRows, AnElementIsTheSameInEveryBox) {
  const InitialRows initial("table", kWidth, 0.5, 3);
  for (const c10::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor whole = initial.make({{0, 0}, {kRows, kWidth}}, dtype);
    EXPECT_LE(whole.abs().max().item<double>(), 0.5);
    EXPECT_GT(whole.abs().max().item<double>(), 0.49);
    EXPECT_NEAR(whole.mean().item<double>(), 0, 0.05);
    for (const mesh::Box& box : {mesh::Box{{7, 0}, {100, kWidth}}, mesh::Box{{7, 1}, {294, 3}},
                                 mesh::Box{{0, 4}, {kRows, 1}}, mesh::Box{{9, 2}, {0, 2}}}) {
      const at::Tensor part = whole.narrow(0, box.offset[0], box.size[0])
                                  .narrow(1, box.offset[1], box.size[1])
                                  .contiguous();
      harness::assert_same_bits(initial.make(box, dtype), part, "box");
    }
  }
}

TEST(InitialRows, SomeRowsOfABoxAreThoseOfTheWholeBox) {
  const InitialRows initial("table", kWidth, 0.5, 3);
  const mesh::Box box{{11, 1}, {20, 3}};
  const at::Tensor all = initial.make(box, at::kDouble), some = at::empty({4, 3}, at::kDouble);
  initial.write(box, 6, 10, some.mutable_data_ptr<double>());
  harness::assert_same_bits(some, all.slice(0, 6, 10).contiguous(), "rows");
}

TEST(InitialRows, DependOnSeedAndName) {
  const mesh::Box box{{0, 0}, {3, kWidth}};
  const at::Tensor values = InitialRows("table", kWidth, 1, 3).make(box, at::kDouble);
  EXPECT_FALSE(at::equal(values, InitialRows("table", kWidth, 1, 4).make(box, at::kDouble)));
  EXPECT_FALSE(at::equal(values, InitialRows("other", kWidth, 1, 3).make(box, at::kDouble)));
}

}  // namespace
}  // namespace trireme::parallel
