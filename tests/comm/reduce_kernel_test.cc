#include "trireme/comm/reduce_kernel.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr ReduceOp kOperations[] = {ReduceOp::kSum,   ReduceOp::kProduct, ReduceOp::kMin,
                                    ReduceOp::kMax,   ReduceOp::kAverage, ReduceOp::kBitAnd,
                                    ReduceOp::kBitOr, ReduceOp::kBitXor};
constexpr at::ScalarType kDtypes[] = {
    at::kBool, at::kByte,     at::kChar,  at::kShort,  at::kInt,          at::kLong,
    at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

bool is_defined(at::ScalarType dtype, ReduceOp operation) {
  switch (operation) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct: return true;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return !at::isComplexType(dtype);
    case ReduceOp::kAverage: return dtype != at::kBool;
    default: return at::isIntegralType(dtype, true);
  }
}

at::Tensor reduce(const std::vector<at::Tensor>& inputs, ReduceOp operation) {
  at::Tensor out = at::empty_like(inputs[0]);
  std::vector<const void*> pointers;
  for (const at::Tensor& input : inputs) pointers.push_back(input.const_data_ptr());
  void* to = out.data_ptr();
  reduce_in_rank_order({&to, 1}, pointers, out.numel(), out.scalar_type(), operation);
  return out;
}

TEST(ReduceKernel, EveryDtypeAndOperationFollowsTheScalarModel) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const ReduceOp operation : kOperations) {
      if (!is_defined(dtype, operation)) continue;
      EXPECT_NO_THROW(check_reducible(dtype, operation));
      for (const int size : {1, 2, 3, 8}) {
        for (const int64_t count : {0, 1, 511, 512, 1500}) {
          std::vector<at::Tensor> inputs;
          for (int r = 0; r < size; ++r) inputs.push_back(values_of(r, {count}, dtype));
          harness::assert_same_bits(
              reduce(inputs, operation), model_of(inputs, operation),
              concat(name_of(operation), " of ", size, " x ", count, " ", c10::toString(dtype)));
        }
      }
    }
  }
}

TEST(ReduceKernel, OutputMayBeOneOfTheInputs) {
  for (int own = 0; own < 3; ++own) {
    std::vector<at::Tensor> inputs;
    for (int r = 0; r < 3; ++r) inputs.push_back(values_of(r, {1000}, at::kFloat));
    const at::Tensor expected = model_of(inputs, ReduceOp::kSum);
    std::vector<const void*> pointers;
    for (const at::Tensor& input : inputs) pointers.push_back(input.const_data_ptr());
    void* to = inputs[own].data_ptr();
    reduce_in_rank_order({&to, 1}, pointers, 1000, at::kFloat, ReduceOp::kSum);
    harness::assert_same_bits(inputs[own], expected, concat("into input ", own));
  }
}

TEST(ReduceKernel, SixteenBitFloatsAccumulateInFp32AndRoundOnce) {
  // 256 + 1 is no bfloat16 (it rounds back to 256), 256 + 4 * 1 is; 2048 + 1 is no half.
  for (const auto& [dtype, large] : {std::pair{at::kBFloat16, 256.0}, {at::kHalf, 2048.0}}) {
    std::vector<at::Tensor> inputs{at::full({3}, large, dtype)};
    for (int r = 0; r < 4; ++r) inputs.push_back(at::ones({3}, dtype));
    const at::Tensor sum = reduce(inputs, ReduceOp::kSum);
    EXPECT_EQ(sum[1].item<double>(), large + 4) << c10::toString(dtype);
  }
}

TEST(ReduceKernel, NanWinsMinimumAndMaximumOnWhicheverRankItIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp operation : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (int where = 0; where < 3; ++where) {
      std::vector<at::Tensor> inputs;
      for (int r = 0; r < 3; ++r) inputs.push_back(at::full({2}, r == where ? nan : 1.0F + r));
      EXPECT_TRUE(std::isnan(reduce(inputs, operation)[0].item<float>())) << where;
    }
  }
}

TEST(ReduceKernel, IntegersWrapAround) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const std::vector<at::Tensor> inputs{at::full({2}, largest, at::kLong),
                                       at::full({2}, 2, at::kLong)};
  EXPECT_EQ(reduce(inputs, ReduceOp::kSum)[0].item<int64_t>(),
            std::numeric_limits<int64_t>::min() + 1);
  EXPECT_EQ(reduce(inputs, ReduceOp::kProduct)[0].item<int64_t>(), -2);
}

TEST(ReduceKernel, AnAverageOfIntegersIsTheSumDividedTowardsZero) {
  const auto of = [](const std::vector<int64_t>& terms, at::ScalarType dtype) {
    std::vector<at::Tensor> inputs;
    for (const int64_t term : terms) inputs.push_back(at::full({3}, term, dtype));
    const at::Tensor average = reduce(inputs, ReduceOp::kAverage);
    at::Tensor sum = reduce(inputs, ReduceOp::kSum);
    divide_elements(sum.data_ptr(), sum.numel(), dtype, static_cast<int>(terms.size()));
    harness::assert_same_bits(sum, average, "divide_elements");
    return average[2].item<int64_t>();
  };
  for (const at::ScalarType dtype : {at::kChar, at::kShort, at::kInt, at::kLong}) {
    EXPECT_EQ(of({3, 4}, dtype), 3) << c10::toString(dtype);
    EXPECT_EQ(of({-3, -4}, dtype), -3) << c10::toString(dtype);
    EXPECT_EQ(of({-1, 0, 0}, dtype), 0) << c10::toString(dtype);
  }
  // The sum wraps around first, and a divisor need not fit its type.
  EXPECT_EQ(of({100, 100}, at::kChar), -28);
  EXPECT_EQ(of(std::vector<int64_t>(200, -1), at::kChar), 56 / 200);
  EXPECT_EQ(of(std::vector<int64_t>(300, 1), at::kByte), 44 / 300);
  EXPECT_EQ(of({int64_t{1} << 53, int64_t{1} << 53}, at::kLong), int64_t{1} << 53);
  EXPECT_EQ(of({(int64_t{1} << 62) - 1, 1 + (int64_t{1} << 61)}, at::kLong),
            ((int64_t{1} << 62) + (int64_t{1} << 61)) / 2);
}

TEST(ReduceKernel, UnsupportedPairsAreConfigErrorsThatNameBoth) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const ReduceOp operation : kOperations) {
      if (is_defined(dtype, operation)) continue;
      EXPECT_ERROR(ConfigError, check_reducible(dtype, operation),
                   concat(name_of(operation), " is not defined on ", c10::toString(dtype)));
    }
  }
  EXPECT_ERROR(ConfigError, check_reducible(at::kFloat8_e5m2, ReduceOp::kSum), "Float8_e5m2");
}

}  // namespace
}  // namespace trireme::comm
