#include "trireme/checkpoint/foreign/mxfp4.h"

#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using TensorMap = std::map<std::string, at::Tensor>;

constexpr int64_t kExperts = 3, kRows = 5, kBlocks = 2;

// Of sixteen bytes each; every byte occurs.
at::Tensor some_blocks() {
  const int64_t bytes = kExperts * kRows * kBlocks * 16;
  return at::arange(bytes, at::kLong)
      .mul(37)
      .remainder(256)
      .to(at::kByte)
      .view({kExperts, kRows, kBlocks, 16});
}

at::Tensor some_scales() {
  return at::arange(kExperts * kRows * kBlocks, at::kLong)
      .mul(9)
      .to(at::kByte)
      .view({kExperts, kRows, kBlocks});
}

// The sign, the exponent and the mantissa of the specification.
double number_of(int bits) {
  const double sign = (bits & 8) != 0 ? -1 : 1;
  const int exponent = (bits >> 1) & 3, mantissa = bits & 1;
  if (exponent == 0) return sign * 0.5 * mantissa;
  return sign * std::ldexp(1 + 0.5 * mantissa, exponent - 1);
}

TEST(Mxfp4, NumbersAreThoseOfTheSpecification) {
  const at::Tensor blocks = some_blocks(), scales = some_scales();
  const at::Tensor numbers = mxfp4_numbers(blocks, scales);
  ASSERT_EQ(numbers.scalar_type(), at::kBFloat16);
  ASSERT_EQ(numbers.sizes(), at::IntArrayRef({kExperts, 32 * kBlocks, kRows}));
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < 32 * kBlocks; ++i) {
        const int byte = blocks[e][row][i / 32][i % 32 / 2].item<int>();
        const int scale = scales[e][row][i / 32].item<int>();
        const double expected =
            std::ldexp(number_of(i % 2 == 0 ? byte & 15 : byte >> 4), scale - 127);
        ASSERT_EQ(numbers[e][i][row].item<double>(), expected) << e << " " << row << " " << i;
      }
    }
  }
}

TEST(Mxfp4, AScaleThatIsNoNumberIsRefused) {
  at::Tensor scales = some_scales();
  scales[1][2][1] = 255;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { mxfp4_numbers(some_blocks(), scales); }),
              AllOf(HasSubstr("1 of 30 scales are 255"), HasSubstr("at most 254")));
}

class Mxfp4Source : public testing::Test {
 protected:
  std::unique_ptr<TensorSource> open(const TensorMap& tensors) {
    const auto path = folder_.path() / "model.safetensors";
    write_safetensors(path, tensors, {});
    return with_mxfp4(open_tensors(path), path);
  }
  std::string refusal(const TensorMap& tensors) {
    return harness::message_of<CheckpointError>([&] { open(tensors); });
  }

  harness::TemporaryFolder folder_;
};

TEST_F(Mxfp4Source, HasOneTensorInPlaceOfBoth) {
  const at::Tensor other = at::arange(6, at::kFloat);
  const auto source =
      open({{"a.w_blocks", some_blocks()}, {"a.w_scales", some_scales()}, {"a.b", other}});
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->tensors().at("a.w").dtype, at::kBFloat16);
  EXPECT_EQ(source->tensors().at("a.w").shape, (std::vector<int64_t>{3, 64, 5}));
  harness::assert_same_bits(source->read("a.w"), mxfp4_numbers(some_blocks(), some_scales()), "w");
  harness::assert_same_bits(source->read("a.b"), other, "b");
}

TEST_F(Mxfp4Source, HostileFilesAreOneLine) {
  const at::Tensor blocks = some_blocks(), scales = some_scales();
  EXPECT_THAT(refusal({{"w_blocks", blocks}}), HasSubstr("no w_scales"));
  EXPECT_THAT(refusal({{"w_blocks", blocks}, {"w_scales", scales.narrow(1, 0, 4).contiguous()}}),
              AllOf(HasSubstr("[3, 5, 2, 16]"), HasSubstr("[3, 4, 2]")));
  EXPECT_THAT(refusal({{"w_blocks", blocks.flatten(2)}, {"w_scales", scales}}),
              HasSubstr("[3, 5, 32]"));
  EXPECT_THAT(refusal({{"w_blocks", blocks}, {"w_scales", scales.to(at::kFloat)}}),
              HasSubstr("Float"));
  EXPECT_THAT(refusal({{"w_blocks", blocks}, {"w_scales", scales}, {"w", at::ones({2})}}),
              HasSubstr("both w and w_blocks"));
  const auto source = open({{"w_blocks", blocks}, {"w_scales", at::full_like(scales, 255)}});
  EXPECT_THAT(harness::message_of<CheckpointError>([&] { source->read("w"); }),
              AllOf(HasSubstr("w_scales"), HasSubstr("30 of 30")));
}

}  // namespace
}  // namespace trireme::checkpoint
