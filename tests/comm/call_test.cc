#include "trireme/comm/communicator.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TEST(Call, SaysWhatIsDone) {
  const auto of = [](at::ScalarType dtype) { return static_cast<int>(dtype); };
  EXPECT_EQ(to_string({"barrier"}), "barrier");
  EXPECT_EQ(to_string({"all_to_all", of(at::kFloat)}), "all_to_all(Float)");
  EXPECT_EQ(
      to_string({.operation = "broadcast", .dtype = of(at::kFloat), .root = 1, .elements = 6}),
      "broadcast(Float, 6 elements, root 1)");
  EXPECT_EQ(to_string({"reduce", of(at::kHalf), static_cast<int>(ReduceOp::kMax), 0, 6}),
            "reduce(Half, 6 elements, max, root 0)");
  EXPECT_EQ(to_string({"all_gather", of(at::kFloat), -1, -1, 5, 0xab}),
            "all_gather(Float, 5 elements in blocks ab)");
}

}  // namespace
}  // namespace trireme::comm
