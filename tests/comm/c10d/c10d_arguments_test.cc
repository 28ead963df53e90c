#include "trireme/comm/c10d/c10d_arguments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(C10dArguments, RefuseTensorsWhoseMemoryCannotBeSent) {
  EXPECT_ERROR(ConfigError, check_sendable("broadcast", at::Tensor()), "undefined");
  EXPECT_ERROR(ConfigError, check_sendable("broadcast", at::empty({2}, at::kMeta)),
               "broadcast: got a tensor on meta; the trireme backend works on CPU tensors");
  EXPECT_ERROR(ConfigError, check_sendable("broadcast", at::eye(2).to_sparse()), "Sparse");
  const at::Tensor complex = at::ones({2}, at::kComplexFloat);
  EXPECT_ERROR(ConfigError, check_sendable("broadcast", complex.conj()), "resolve_conj");
  EXPECT_ERROR(ConfigError, check_sendable("broadcast", at::imag(complex.conj())), "resolve_neg");
  EXPECT_NO_THROW(check_sendable("broadcast", at::ones({2, 3}).t()));
}

TEST(C10dArguments, TakeOneTensorAndOneListAProcess) {
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(only_tensor("reduce", {tensor}).is_same(tensor));
  EXPECT_ERROR(ConfigError, only_tensor("reduce", {}), "got 0 tensors; expected one");
  EXPECT_ERROR(ConfigError, only_tensor("reduce", {tensor, tensor}), "got 2 tensors");
  EXPECT_EQ(only_list("gather", {{tensor, tensor}}, 2).size(), 2U);
  EXPECT_ERROR(ConfigError, only_list("gather", {{tensor}}, 2), "one for each of 2 ranks");
  EXPECT_ERROR(ConfigError, only_list("gather", {}, 2), "got 0 lists");
}

TEST(C10dArguments, MapEveryReductionOfTorch) {
  using Op = c10d::ReduceOp;
  const std::vector<std::pair<Op, ReduceOp>> pairs = {
      {Op::SUM, ReduceOp::kSum},   {Op::AVG, ReduceOp::kAverage}, {Op::PRODUCT, ReduceOp::kProduct},
      {Op::MIN, ReduceOp::kMin},   {Op::MAX, ReduceOp::kMax},     {Op::BAND, ReduceOp::kBitAnd},
      {Op::BOR, ReduceOp::kBitOr}, {Op::BXOR, ReduceOp::kBitXor}};
  for (const auto& [op, expected] : pairs) {
    const Reduction reduction = reduction_of(op);
    EXPECT_EQ(reduction.operation, expected);
    EXPECT_FALSE(reduction.factor.has_value());
  }
  EXPECT_ERROR(ConfigError, reduction_of(Op::UNUSED), "reduction 9");
}

TEST(C10dArguments, MultiplyBeforeAPremultipliedSum) {
  c10d::ReduceOp op;
  op.op_ = c10d::ReduceOp::PREMUL_SUM;
  EXPECT_ERROR(ConfigError, reduction_of(op), "no factor");
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(0.5);
  const Reduction by_number = reduction_of(op);
  EXPECT_EQ(by_number.operation, ReduceOp::kSum);
  harness::assert_same_bits(by_number.prepare(at::full({2}, 3.0f)), at::full({2}, 1.5f), "number");
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(at::full({1}, 2.0f));
  harness::assert_same_bits(reduction_of(op).prepare(at::full({2}, 3.0)), at::full({2}, 6.0),
                            "tensor");
  EXPECT_ERROR(ConfigError, by_number.prepare(at::ones({2}, at::kLong)), "not defined on Long");
}

TEST(C10dArguments, CutABufferByRowsEvenlyOrAsAsked) {
  const at::Tensor buffer = at::arange(12).view({6, 2});
  EXPECT_EQ(block_elements("all_to_all", buffer, 3), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(block_elements("all_to_all", buffer, 3, std::vector<int64_t>{5, 0, 1}),
            (std::vector<int64_t>{10, 0, 2}));
  EXPECT_EQ(block_elements("all_to_all", at::empty({0, 4}), 2), (std::vector<int64_t>{0, 0}));
  EXPECT_ERROR(ConfigError, block_elements("all_to_all", buffer, 4), "6 rows");
  EXPECT_ERROR(ConfigError, block_elements("all_to_all", buffer, 2, std::vector<int64_t>{5, 0}),
               "add up to 5; expected the buffer's 6");
  EXPECT_ERROR(ConfigError, block_elements("all_to_all", buffer, 3, std::vector<int64_t>{5, 1}),
               "got 2 split sizes");
  EXPECT_ERROR(ConfigError, block_elements("all_to_all", buffer, 2, std::vector<int64_t>{7, -1}),
               "got split size -1");
}

TEST(C10dArguments, WriteThroughBlocksWhetherContiguousOrNot) {
  const std::vector<int64_t> elements = {4, 2};
  const at::Tensor expected = at::tensor({1, 1, 1, 1, 2, 2}, at::kLong).view({3, 2});
  for (const bool is_contiguous : {true, false}) {
    const at::Tensor buffer =
        is_contiguous ? at::zeros({3, 2}, at::kLong) : at::zeros({2, 3}, at::kLong).t();
    const OutputBlocks output(buffer, elements);
    output.blocks[0].fill_(1);
    output.blocks[1].fill_(2);
    EXPECT_EQ(static_cast<bool>(output.commit), !is_contiguous);
    if (output.commit) output.commit();
    harness::assert_same_bits(buffer.contiguous(), expected, "output");
    const auto inputs = input_blocks(buffer, elements);
    harness::assert_same_bits(inputs[1], at::tensor({2, 2}, at::kLong), "input");
  }
}

}  // namespace
}  // namespace trireme::comm
