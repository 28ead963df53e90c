#include "trireme/parallel/data/compression/feedback_hooks.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

TEST(ErrorFeedback, StartsAtZeroAndAddsWhatWasKept) {
  ErrorFeedback feedback;
  feedback.add_gradient({"w", {2, 2}, at::kFloat});
  const at::Tensor gradient = at::ones({2, 2});
  const at::Tensor corrected = feedback.corrected("w", gradient);
  harness::assert_same_bits(corrected, gradient, "first");
  EXPECT_FALSE(corrected.is_alias_of(gradient));
  feedback.keep("w", at::full({2, 2}, 0.25));
  harness::assert_same_bits(feedback.corrected("w", gradient), at::full({2, 2}, 1.25), "second");
}

TEST(ErrorFeedback, ResidualsOfCoarseGradientsAreFp32) {
  ErrorFeedback feedback;
  feedback.add_gradient({"w", {3}, at::kBFloat16});
  feedback.add_gradient({"v", {3}, at::kDouble});
  EXPECT_EQ(feedback.corrected("w", at::ones({3}, at::kBFloat16)).scalar_type(), at::kFloat);
  EXPECT_EQ(feedback.corrected("v", at::ones({3}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST(ErrorFeedback, ForgetsWhatIsNotFinite) {
  ErrorFeedback feedback;
  feedback.add_gradient({"w", {4}, at::kFloat});
  const float bad[] = {NAN, INFINITY, -INFINITY, 2};
  feedback.keep("w", at::tensor(at::ArrayRef<float>(bad)));
  harness::assert_same_bits(feedback.state()[0].tensor, at::tensor({0.f, 0.f, 0.f, 2.f}), "kept");
}

TEST(ErrorFeedback, StateIsOfThisRankAndLoadsInPlace) {
  ErrorFeedback feedback;
  feedback.add_gradient({"b", {0, 3}, at::kFloat});
  feedback.add_gradient({"a", {}, at::kFloat});
  const auto state = feedback.state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "error.a");
  EXPECT_EQ(state[1].name, "error.b");
  EXPECT_FALSE(state[0].same_on_ranks);
  state[0].tensor.fill_(3);
  EXPECT_EQ(feedback.corrected("a", at::zeros({})).item<float>(), 3);
}

}  // namespace
}  // namespace trireme::parallel
