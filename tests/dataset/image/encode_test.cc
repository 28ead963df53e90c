#include "trireme/dataset/image/encode.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/dataset/image/decode.h"

namespace trireme::dataset {
namespace {

TEST(EncodePng, IsWhatTheDecoderReads) {
  for (const int64_t channels : {1, 3}) {
    const at::Tensor image = at::arange(channels * 5 * 7, at::kInt)
                                 .mul(37)
                                 .remainder(256)
                                 .to(at::kByte)
                                 .view({channels, 5, 7});
    const std::string bytes = encode_png(image);
    const auto span = std::as_bytes(std::span(bytes));
    const ImageSize size = image_size(span, "x");
    EXPECT_EQ(size, (ImageSize{5, 7}));
    const DecodedBox found = decode_image(span, "x", whole(size), size);
    const at::Tensor pixels = at::from_blob(found.pixels.values.get(), {5, 7, 3}, at::kByte);
    EXPECT_TRUE(pixels.permute({2, 0, 1}).equal(image.expand({3, 5, 7}))) << channels;
  }
}

TEST(EncodePng, TakesNothingButImages) {
  EXPECT_THROW(encode_png(at::zeros({2, 5, 7}, at::kByte)), InternalError);
  EXPECT_THROW(encode_png(at::zeros({3, 5, 7}, at::kFloat)), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
