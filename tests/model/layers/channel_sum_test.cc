#include "trireme/model/layers/batch_norm.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/tensors.h"

namespace trireme::model {
namespace {

using namespace harness;

// Two roundings of each term.
double tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-15 : dtype == at::kFloat ? 5e-7 : 3e-2;
}

TEST(ChannelSum, EqualsItsFormulaInEveryFormat) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {3, 5}, {2, 5, 3}, {3, 5, 4, 3}, {1, 5, 1, 1}, {2, 5, 70, 61}, {0, 5, 2, 2}}) {
      const at::Tensor first = values(shape, 0.37).to(dtype),
                       second = values(shape, 0.71).to(dtype);
      const ChannelFactors factors{values({5}, 0.9, 2), values({5}, 0.5, 3), values({5}, 0.3)};
      const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
      const at::Tensor expected = beside(factors.first_C, first) * wide(first) +
                                  beside(factors.second_C, first) * wide(second) +
                                  beside(factors.offset_C, first);
      const auto check = [&](const at::Tensor& a, const at::Tensor& b) {
        const at::Tensor found = channel_sum(a, b, factors);
        EXPECT_EQ(found.scalar_type(), dtype);
        EXPECT_EQ(found.sizes(), a.sizes());
        if (found.numel() == 0) return;
        assert_close(wide(found), expected, tolerance(dtype), tolerance(dtype), "sum");
      };
      check(first, second);
      if (shape.size() != 4) continue;
      const auto last = [](const at::Tensor& x) {
        return x.contiguous(at::MemoryFormat::ChannelsLast);
      };
      check(last(first), last(second));
      check(first, last(second));  // not alike
    }
  }
}

}  // namespace
}  // namespace trireme::model
