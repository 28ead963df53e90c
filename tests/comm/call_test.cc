#include "trireme/comm/call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(Call, SaysWhatIsDone) {
  const at::Tensor data = at::zeros({2, 3});
  EXPECT_EQ(to_string({"barrier"}), "barrier");
  EXPECT_EQ(to_string(call_of("all_to_all", data)), "all_to_all(Float)");
  EXPECT_EQ(to_string(call_of("broadcast", data, 6, 1)), "broadcast(Float, 6 elements, root 1)");
  EXPECT_EQ(to_string(reduce_call("reduce", data.to(at::kHalf), 6, ReduceOp::kMax, 0)),
            "reduce(Half, 6 elements, max, root 0)");
}

TEST(Call, BlocksOfOtherSizesAreAnotherCall) {
  const Call call = call_of("all_gather", at::zeros({3}), 5);
  const auto of = [&](int64_t a, int64_t b) {
    return in_blocks(call, {at::zeros({a}), at::zeros({b})}).block_sizes;
  };
  EXPECT_EQ(of(2, 3), of(2, 3));
  EXPECT_NE(of(2, 3), of(3, 2));
  EXPECT_NE(of(0, 5), 0u);
  EXPECT_TRUE(contains(to_string(in_blocks(call, {at::zeros({5})})), "5 elements in blocks "));
}

TEST(Call, RefusesTensorsAndReductionsThatNoTransportHas) {
  EXPECT_ERROR(ConfigError, call_of("send", at::Tensor()), "send: got an undefined tensor");
  EXPECT_ERROR(ConfigError, reduce_call("reduce", at::zeros({2}), 2, ReduceOp::kBitAnd), "Float");
}

}  // namespace
}  // namespace trireme::comm
