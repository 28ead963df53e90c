#include "trireme/parallel/server/link/frame.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(Frame, OnlyBoundedFramesOfKnownKindsAreValid) {
  FrameHeader header{.kind = FrameKind::kPull};
  EXPECT_TRUE(is_valid(header));
  header.payload_bytes = kMaxPayloadBytes;
  EXPECT_TRUE(is_valid(header));
  header.payload_bytes = kMaxPayloadBytes + 1;
  EXPECT_FALSE(is_valid(header));
  EXPECT_FALSE(is_valid({.kind = static_cast<FrameKind>(0)}));
  EXPECT_FALSE(is_valid({.kind = static_cast<FrameKind>(kNumFrameKinds + 1)}));
  EXPECT_FALSE(is_valid({.base = -1}));
  EXPECT_FALSE(is_valid({.learning_rate = std::numeric_limits<double>::quiet_NaN()}));
}

TEST(Frame, PayloadsShareTheTensorsMemory) {
  const at::Tensor values = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor bytes = bytes_of(values);
  EXPECT_EQ(bytes.numel(), 24);
  EXPECT_EQ(bytes.data_ptr(), values.data_ptr());
  EXPECT_EQ(bytes_of(at::empty({0, 4})).numel(), 0);
  EXPECT_EQ(text_of(bytes_of("words")), "words");
  EXPECT_EQ(text_of(at::Tensor()), "");
  EXPECT_STREQ(name_of(FrameKind::kRefused), "refused");
}

}  // namespace
}  // namespace trireme::parallel
