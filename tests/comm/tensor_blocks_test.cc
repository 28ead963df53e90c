#include "trireme/comm/tensor_blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::comm {
namespace {

TEST(TensorBlocks, EvenBlocksDifferByOneElementAtMostAndCoverTheTensor) {
  for (const int64_t length : {0, 1, 7, 8, 9}) {
    const at::Tensor flat = at::arange(length);
    const auto blocks = view_even_blocks(flat, 4);
    ASSERT_EQ(blocks.size(), 4u);
    EXPECT_TRUE(at::equal(at::cat(blocks), flat));
    EXPECT_LE(blocks.front().numel() - blocks.back().numel(), 1);
    EXPECT_GE(blocks.front().numel(), blocks.back().numel());
  }
}

TEST(TensorBlocks, MembersOfASplitComeByKeyAndThenByRank) {
  harness::run_ranks(4, [](Communicator& group) {
    const int rank = group.rank();
    EXPECT_EQ(members_of_split(group, 0, 0), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(members_of_split(group, rank % 2, -rank),
              rank % 2 == 0 ? (std::vector<int>{2, 0}) : (std::vector<int>{3, 1}));
    EXPECT_EQ(members_of_split(group, rank == 2 ? -1 : 7, 0),
              rank == 2 ? std::vector<int>{2} : (std::vector<int>{0, 1, 3}));
  });
}

TEST(TensorBlocks, StridedTensorsAreWrittenThroughACopyThatIsPutBack) {
  const at::Tensor strided = at::zeros({2, 3}).t();
  const FlatTensor copy(strided);
  copy.flat().copy_(at::arange(6));
  EXPECT_EQ(strided.sum().item<float>(), 0);
  copy.commit();
  EXPECT_EQ(strided[1][0].item<float>(), 2);
  const at::Tensor dense = at::zeros({2, 3});
  FlatTensor(dense).flat().fill_(1);
  EXPECT_EQ(dense.sum().item<float>(), 6);
}

TEST(TensorBlocks, HashesTellOrdersOfSizesApart) {
  const at::Tensor three = at::empty({3}), five = at::empty({5});
  EXPECT_NE(hash_of_sizes({three, five}), hash_of_sizes({five, three}));
  EXPECT_EQ(hash_of_sizes({three, five}), hash_of_sizes({three.clone(), five.clone()}));
  EXPECT_EQ(total_elements({three, five}), 8);
}

}  // namespace
}  // namespace trireme::comm
