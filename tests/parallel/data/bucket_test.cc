#include "trireme/parallel/data/bucket.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

at::Tensor ordinary(int64_t elements, const at::Tensor& like) {
  return at::empty({elements}, like.options().requires_grad(false));
}

std::vector<at::Tensor> tensors_of(std::initializer_list<int64_t> sizes,
                                   at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> tensors;
  for (const int64_t size : sizes) tensors.push_back(at::zeros({size}, dtype));
  return tensors;
}

TEST(Bucket, ClosesBeforeItWouldPassTheLimit) {
  const auto buckets = make_buckets(tensors_of({4, 4, 4, 1}), 32, ordinary);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].parameters, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{2, 3}));
}

TEST(Bucket, AParameterPastTheLimitHasABucketOfItsOwn) {
  const auto buckets = make_buckets(tensors_of({1, 100, 1}), 16, ordinary);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{1}));
}

TEST(Bucket, GradientsAreViewsShapedLikeTheParameters) {
  const std::vector<at::Tensor> parameters = {at::zeros({2, 3}), at::zeros({}), at::zeros({0, 4}),
                                              at::zeros({5})};
  const auto buckets = make_buckets(parameters, 1 << 20, ordinary);
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].flat.numel(), 12);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(buckets[0].gradients[i].sizes(), parameters[i].sizes());
    EXPECT_TRUE(buckets[0].gradients[i].is_alias_of(buckets[0].flat));
    buckets[0].gradients[i].fill_(static_cast<double>(i + 1));
  }
  // Back to back, in order, without overlap.
  EXPECT_TRUE(buckets[0].flat.equal(at::tensor({1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4}, at::kFloat)));
}

TEST(Bucket, DtypesNeverShareABucketAndOrderFollowsTheLastParameter) {
  std::vector<at::Tensor> parameters = tensors_of({2, 2, 2, 2});
  parameters[1] = parameters[1].to(at::kDouble);
  parameters[2] = parameters[2].to(at::kDouble);
  const auto buckets = make_buckets(parameters, 1 << 20, ordinary);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].parameters, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(buckets[1].parameters, (std::vector<size_t>{0, 3}));
  EXPECT_EQ(buckets[0].flat.scalar_type(), at::kDouble);
}

TEST(Bucket, NoParametersMakeNoBuckets) { EXPECT_TRUE(make_buckets({}, 1024, ordinary).empty()); }

}  // namespace
}  // namespace trireme::parallel
