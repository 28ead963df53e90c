#include "trireme/cli/predict/batch_text.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

TEST(BatchText, HasNamesDtypesShapesAndValues) {
  const std::vector<dataset::NamedTensors> batches = {
      {{"image", at::arange(24, at::kByte).view({2, 3, 4})},
       {"x", at::arange(6, at::kDouble).view({3, 2}).t()},
       {"empty", at::empty({2, 0}, at::kLong)},
       {"half", at::ones({2}, at::kBFloat16)}},
      {},
      {{"scalar", at::scalar_tensor(-7, at::kLong)}}};
  const std::vector<dataset::NamedTensors> read = from_text(to_text(batches));
  ASSERT_EQ(read.size(), batches.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    ASSERT_EQ(read[b].size(), batches[b].size());
    for (size_t t = 0; t < batches[b].size(); ++t) {
      EXPECT_EQ(read[b][t].first, batches[b][t].first);
      harness::assert_same_bits(read[b][t].second, batches[b][t].second, batches[b][t].first);
    }
  }
  EXPECT_TRUE(from_text(to_text({})).empty());
}

TEST(BatchText, OtherTextIsRefused) {
  const std::vector<dataset::NamedTensors> batches = {{{"x", at::arange(4)}}};
  const std::string text = to_text(batches);
  EXPECT_THROW(from_text(""), InternalError);
  EXPECT_THROW(from_text(text.substr(0, text.size() - 1)), InternalError);
  EXPECT_THROW(from_text(text + "x"), InternalError);
}

}  // namespace
}  // namespace trireme::cli
