#include "trireme/comm/device/ordered_sum.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

constexpr ReduceOp kOperations[] = {ReduceOp::kSum,   ReduceOp::kProduct, ReduceOp::kMin,
                                    ReduceOp::kMax,   ReduceOp::kAverage, ReduceOp::kBitAnd,
                                    ReduceOp::kBitOr, ReduceOp::kBitXor};
constexpr at::ScalarType kDtypes[] = {
    at::kBool,     at::kByte,   at::kChar,   at::kShort,        at::kInt,
    at::kLong,     at::kUInt16, at::kUInt32, at::kUInt64,       at::kHalf,
    at::kBFloat16, at::kFloat,  at::kDouble, at::kComplexFloat, at::kComplexDouble};

// As reduce_kernel.h has it.
at::Tensor expected_of(const std::vector<at::Tensor>& inputs, ReduceOp operation) {
  at::Tensor out = at::empty_like(inputs[0]);
  std::vector<const void*> pointers;
  for (const at::Tensor& input : inputs) pointers.push_back(input.const_data_ptr());
  void* to = out.data_ptr();
  reduce_in_rank_order({&to, 1}, pointers, out.numel(), out.scalar_type(), operation);
  return out;
}

at::Tensor bits_of(const at::Tensor& tensor) { return tensor.cpu().view(at::kByte); }

void expect_same(const std::vector<at::Tensor>& inputs, ReduceOp operation, at::Device device) {
  std::vector<at::Tensor> moved;
  for (const at::Tensor& input : inputs) moved.push_back(input.to(device));
  const at::Tensor expected = expected_of(inputs, operation);
  const at::Tensor out = at::empty_like(moved[0]);
  reduce_tensors(out, moved, operation);
  const std::string what = concat(name_of(operation), " of ", inputs.size(), " ",
                                  c10::toString(inputs[0].scalar_type()), " on ", device);
  harness::assert_same_bits(bits_of(out), bits_of(expected), what);
  reduce_tensors(moved.back(), moved, operation);
  harness::assert_same_bits(bits_of(moved.back()), bits_of(expected), what + ", in place");
}

TEST(OrderedSum, HasTheBitsOfTheHostsKernel) {
  int num_pairs = 0;
  for (const at::Device device : {at::Device(at::kCPU), harness::fake_device(0)}) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const ReduceOp operation : kOperations) {
        try {
          check_device_reducible(dtype, operation);
        } catch (const ConfigError&) {
          continue;
        }
        ++num_pairs;
        for (const int size : {1, 2, 3, 5}) {
          std::vector<at::Tensor> inputs;
          for (int r = 0; r < size; ++r) {
            // Any bits are an integer; values_of() has no wide unsigned ones.
            inputs.push_back(c10::isBarebonesUnsignedType(dtype)
                                 ? values_of(r, {300}, at::kLong).view(dtype)
                                 : values_of(r, {300}, dtype));
          }
          expect_same(inputs, operation, device);
        }
      }
    }
  }
  EXPECT_EQ(num_pairs, 2 * (7 + 5 * 8 + 3 * 6 + 4 * 5 + 2 * 3));
}

TEST(OrderedSum, KeepsNanAndTheSignOfZeros) {
  const at::Tensor a = at::tensor({0.0F, -0.0F, NAN, 1.0F, -1.0F});
  const at::Tensor b = at::tensor({-0.0F, 0.0F, 1.0F, NAN, 2.0F});
  for (const ReduceOp operation : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum}) {
    expect_same({a, b}, operation, at::kCPU);
    expect_same({a, b, a}, operation, at::kCPU);
  }
}

TEST(OrderedSum, RefusesWhatIsNotDefined) {
  EXPECT_ERROR(ConfigError, check_device_reducible(at::kFloat, ReduceOp::kBitAnd),
               "bitwise and is not defined on Float tensors");
  EXPECT_ERROR(ConfigError, check_device_reducible(at::kUInt32, ReduceOp::kMax),
               "max is not defined on UInt32 tensors of devices");
}

}  // namespace
}  // namespace trireme::comm
