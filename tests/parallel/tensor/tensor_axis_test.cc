#include "trireme/parallel/tensor/tensor_axis.h"

#include <gtest/gtest.h>

#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

TEST(TensorAxis, GatheredRowsAreThoseThatWereSplit) {
  for (const int64_t rows : {0, 1, 2, 7}) {
    const at::Tensor whole = values({rows, 3}, 0.37, 1, at::kFloat);
    for_each_axis({1, 2, 3, 5}, [&](const TensorAxis& axis) {
      assert_same_bits(gather_rows(held_rows(whole, axis), rows, axis, axis.overlaps()).wait(),
                       whole, "rows");
    });
  }
}

TEST(TensorAxis, SumsAreTakenInRankOrderAndHeldAsBetweenLayers) {
  for (const int64_t rows : {0, 1, 7}) {
    for_each_axis({1, 2, 3, 5}, [&](const TensorAxis& axis) {
      at::Tensor expected = at::zeros({rows, 3}, at::kFloat);
      for (int rank = 0; rank < axis.size(); ++rank) {
        const at::Tensor term = values({rows, 3}, 0.3 + rank, 1, at::kFloat);
        expected = rank == 0 ? term : expected + term;
      }
      at::Tensor mine = empty_on(axis, {rows, 3}, expected.options());
      mine.copy_(values({rows, 3}, 0.3 + axis.rank(), 1, at::kFloat));
      assert_same_bits(sum_rows(mine, axis, axis.overlaps()).wait(), held_rows(expected, axis),
                       "sums");
    });
  }
}

TEST(TensorAxis, OneRankAloneNeedsNoGroup) {
  const TensorAxis axis{.sequence = true};
  const at::Tensor x = values({2, 3, 4}, 0.3);
  EXPECT_EQ(gather_rows(x, 6, axis).wait().sizes(), at::IntArrayRef({6, 4}));
  EXPECT_EQ(axis.own_rows(6), (mesh::Range{0, 6}));
}

}  // namespace
}  // namespace trireme::parallel
