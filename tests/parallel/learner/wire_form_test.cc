#include "trireme/parallel/learner/wire_form.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"
#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

std::vector<WireForm> all_forms() {
  std::vector<WireForm> forms;
  for (const double kept : {1.0, 0.3, 1.0 / 64}) {
    for (const WireCode code : {WireCode::kFloat32, WireCode::kInt8, WireCode::kInt4,
                                WireCode::kInt2, WireCode::kTwoBits, WireCode::kSign}) {
      forms.push_back({.code = code, .kept = kept});
    }
    forms.push_back({.code = WireCode::kInt4, .rounding = WireRounding::kStochastic, .kept = kept});
  }
  return forms;
}

at::Tensor difference(int64_t count, int learner = 0) {
  return harness::values({count}, 0.71 + 0.1 * learner, 3, at::kFloat) *
         harness::values({count}, 0.013, 1, at::kFloat);
}

TEST(WireForm, TakesTheBytesItSaysForAnySize) {
  const harness::OneThread one_thread;
  for (const WireForm& form : all_forms()) {
    for (const int64_t count : {0, 1, 2, 63, 255, 1000, 70001}) {
      const at::Tensor bytes = encode(form, difference(count));
      EXPECT_EQ(bytes.scalar_type(), at::kByte);
      EXPECT_EQ(bytes.numel(), encoded_bytes(form, count));
      const at::Tensor decoded = decode(form, bytes, count);
      EXPECT_EQ(decoded.numel(), count);
      EXPECT_TRUE(decoded.isfinite().all().item<bool>());
    }
  }
  // One of 64 elements with two bits: 2.25 bits for its value and 8 for its index.
  const WireForm sparse{.code = WireCode::kTwoBits, .kept = 1.0 / 64};
  EXPECT_EQ(encoded_bytes(sparse, 1 << 20), 16384 * 9 / 32 + 16384);
}

TEST(WireForm, SendsTheLargestElements) {
  const at::Tensor x = at::tensor({1.f, -3.f, 2.f, 2.f, -2.f, 0.f, 2.f, 0.f});
  const WireForm form{.kept = 3.0 / 8};
  EXPECT_EQ(num_kept(form, 8), 3);
  EXPECT_TRUE(decode(form, encode(form, x), 8)
                  .equal(at::tensor({0.f, -3.f, 2.f, 2.f, 0.f, 0.f, 0.f, 0.f})));
  EXPECT_EQ(num_kept(form, 1), 1);
  EXPECT_EQ(num_kept(form, 0), 0);
  EXPECT_EQ(num_kept({.kept = 1e-30}, 8), 1);
}

TEST(WireForm, SumsInTheOrderOfRanks) {
  const harness::OneThread one_thread;
  constexpr int64_t kCount = 1000;
  for (const WireForm& form : all_forms()) {
    std::vector<at::Tensor> encoded;
    at::Tensor expected = at::zeros({kCount});
    for (int i = 0; i < 5; ++i) {
      encoded.push_back(encode(form, difference(kCount, i), random_key(0, std::to_string(i))));
      expected = expected + decode(form, encoded.back(), kCount);
    }
    harness::assert_same_bits(sum_encoded(form, encoded, kCount), expected, "sum");
  }
}

TEST(WireForm, ArrivesTheSameAtEveryRank) {
  constexpr int64_t kCount = 999;
  const WireForm form{.code = WireCode::kInt4, .rounding = WireRounding::kStochastic, .kept = 0.32};
  std::vector<at::Tensor> sums(4);
  harness::run_ranks(4, [&](comm::Communicator& group) {
    const at::Tensor mine =
        encode(form, difference(kCount, group.rank()), random_key(7, std::to_string(group.rank())));
    // Rows of one tensor, where fp32 numbers are not aligned.
    const at::Tensor all = at::empty({4, encoded_bytes(form, kCount)}, at::kByte);
    ASSERT_NE(all.size(1) % 4, 0);
    group.all_gather(all.unbind(0), mine)->wait();
    sums[static_cast<size_t>(group.rank())] = sum_encoded(form, all.unbind(0), kCount);
  });
  for (const at::Tensor& sum : sums) harness::assert_same_bits(sum, sums[0], "sum");
}

TEST(WireForm, IsTheSameOnADevice) {
  constexpr int64_t kCount = 1001;
  for (const WireForm& form : all_forms()) {
    const at::Tensor x = difference(kCount), bytes = encode(form, x, random_key(1, "a"));
    const at::Tensor there = encode(form, x.to(harness::fake_device(0)), random_key(1, "a"));
    EXPECT_EQ(there.device(), harness::fake_device(0));
    harness::assert_same_bits(there.cpu(), bytes, "bytes");
    harness::assert_same_bits(decode(form, there, kCount).cpu(), decode(form, bytes, kCount),
                              "numbers");
  }
}

TEST(WireForm, RefusesToSendWhatIsNotFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const at::Tensor x = difference(1000);
    EXPECT_EQ(first_not_finite(x), -1);
    x[900] = bad;
    x[777] = bad;
    EXPECT_EQ(first_not_finite(x), 777);
    for (const WireForm& form : all_forms()) {
      const auto message = harness::message_of<ConfigError>([&] { encode(form, x); });
      EXPECT_NE(message.find("element 777 of 1000"), std::string::npos) << message;
    }
  }
}

TEST(WireForm, RefusesFormsThatMeanNothing) {
  for (const double kept : {0.0, -1.0, 1.1, std::nan("")}) {
    EXPECT_THROW(check_wire_form({.kept = kept}), ConfigError) << kept;
  }
  for (const WireCode code : {WireCode::kFloat32, WireCode::kTwoBits, WireCode::kSign}) {
    EXPECT_THROW(check_wire_form({.code = code, .rounding = WireRounding::kStochastic}),
                 ConfigError);
  }
  for (const WireForm& form : all_forms()) check_wire_form(form);
}

TEST(WireForm, RefusesOrMakesSenseOfAnyBytes) {
  const harness::OneThread one_thread;
  constexpr int64_t kCount = 600;
  harness::Draw draw(5);
  for (const WireForm& form : all_forms()) {
    const at::Tensor bytes = encode(form, difference(kCount));
    for (const int64_t size : {int64_t{0}, bytes.numel() - 1}) {
      EXPECT_THROW(decode(form, bytes.narrow(0, 0, size), kCount), CommError);
    }
    EXPECT_THROW(decode(form, at::cat({bytes, bytes}), kCount), CommError);
    EXPECT_THROW(decode(form, bytes.to(at::kInt), kCount), CommError);
    for (int i = 0; i < 100; ++i) {
      const at::Tensor damaged = bytes.clone();
      for (int j = 0; j < 1 + i % 3; ++j) {
        damaged[draw.below(bytes.numel())] = static_cast<int64_t>(draw.below(256));
      }
      try {
        const at::Tensor decoded = decode(form, damaged, kCount);
        EXPECT_TRUE(decoded.isfinite().all().item<bool>());
      } catch (const CommError&) {
        // Damage is told from sense where bytes cannot be encode()'s.
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
