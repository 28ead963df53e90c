#include "trireme/parallel/data/bucket_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

std::vector<at::Tensor> tensors_of(std::initializer_list<int64_t> sizes,
                                   at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> tensors;
  for (const int64_t size : sizes) tensors.push_back(at::zeros({size}, dtype));
  return tensors;
}

TEST(Bucket, ClosesBeforeItWouldPassTheLimit) {
  const auto buckets = make_buckets(tensors_of({4, 4, 4, 1}), 32);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].parameters, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{2, 3}));
}

TEST(Bucket, AParameterPastTheLimitHasABucketOfItsOwn) {
  const auto buckets = make_buckets(tensors_of({1, 100, 1}), 16);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{1}));
}

TEST(Bucket, ViewsAreShapedLikeTheParametersAndBeginAtAlignedPlaces) {
  const std::vector<at::Tensor> parameters = {at::zeros({2, 3}), at::zeros({}), at::zeros({0, 4}),
                                              at::zeros({17})};
  const auto buckets = make_buckets(parameters, 1 << 20);
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].offsets, (std::vector<int64_t>{0, 16, 32, 32}));
  EXPECT_EQ(buckets[0].num_elements, 64);
  const at::Tensor flat = at::zeros({64});
  const auto views = view_parameters(buckets[0], flat, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(views[i].sizes(), parameters[i].sizes());
    EXPECT_TRUE(views[i].is_alias_of(flat));
    views[i].fill_(static_cast<double>(i + 1));
  }
  EXPECT_EQ(flat.sum().item<float>(), 6 * 1 + 1 * 2 + 17 * 4) << "views overlap";
}

TEST(Bucket, KindsNeverShareABucketAndOrderFollowsTheLastParameter) {
  std::vector<at::Tensor> parameters = tensors_of({2, 2, 2, 2, 2});
  parameters[1] = parameters[1].to(at::kDouble);
  parameters[2] = parameters[2].to(at::kDouble);
  parameters[4].requires_grad_();
  const auto buckets = make_buckets(parameters, 1 << 20);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].parameters, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{0, 3}));
  EXPECT_EQ(buckets[2].parameters, (std::vector<size_t>{4}));
  EXPECT_EQ(buckets[0].options.dtype(), at::kDouble);
  EXPECT_FALSE(buckets[1].is_trained);
  EXPECT_TRUE(buckets[2].is_trained);
}

TEST(Bucket, NoParametersMakeNoBuckets) { EXPECT_TRUE(make_buckets({}, 1024).empty()); }

}  // namespace
}  // namespace trireme::parallel
