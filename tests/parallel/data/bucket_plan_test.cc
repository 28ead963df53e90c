#include "trireme/parallel/data/bucket_plan.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/messages.h"

namespace trireme::parallel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Parameters a, b, c, d of 16 elements, 64 bytes each.
struct Four : torch::nn::Module {
  Four() {
    for (const char* name : {"a", "b", "c", "d"}) {
      register_parameter(name, at::zeros({16}));
    }
  }
  Unit unit(const std::string& name, std::initializer_list<const char*> parameters) const {
    Unit unit{.name = name, .parameters = {}};
    for (const char* parameter : parameters) {
      unit.parameters.push_back(named_parameters()[parameter]);
    }
    return unit;
  }
};

// Each bucket as the names of its parameters.
std::vector<std::string> buckets_of(const BucketPlan& plan) {
  std::vector<std::string> buckets;
  for (const Bucket& bucket : plan.buckets) {
    std::string& names = buckets.emplace_back();
    for (const size_t index : bucket.parameters) names += plan.names[index];
  }
  return buckets;
}

std::string refusal(const torch::nn::Module& module, std::vector<Unit> units) {
  return harness::message_of<ConfigError>([&] { plan_buckets(module, {.units = units}); });
}

TEST(BucketPlan, IsInTheOrderInWhichBackwardMeetsParameters) {
  const Four module;
  const BucketPlan plan = plan_buckets(module, {.bucket_bytes = 128});
  EXPECT_THAT(plan.names, ElementsAre("d", "c", "b", "a"));
  EXPECT_TRUE(plan.parameters[0].is_same(module.named_parameters()["d"]));
  EXPECT_THAT(buckets_of(plan), ElementsAre("dc", "ba"));
  EXPECT_THAT(plan.units, ElementsAre(kNoUnit, kNoUnit));
}

TEST(BucketPlan, KeepsUnitsApartAndThoseOfNoneForTheEnd) {
  const Four module;
  const std::vector<Unit> units = {module.unit("first", {"a", "c"}), module.unit("second", {"d"})};
  const BucketPlan apart = plan_buckets(module, {.units = units, .apart = true});
  EXPECT_THAT(buckets_of(apart), ElementsAre("d", "ca", "b"));
  EXPECT_THAT(apart.units, ElementsAre(1, 0, kNoUnit));
  const BucketPlan together = plan_buckets(module, {.units = units});
  EXPECT_THAT(buckets_of(together), ElementsAre("dcba"));
  EXPECT_THAT(together.units, ElementsAre(kNoUnit));
}

TEST(BucketPlan, AParameterOfTwoModulesIsInItOnce) {
  torch::nn::Module module;
  const auto part = std::make_shared<Four>();
  module.register_module("one", part);
  module.register_module("two", part);
  EXPECT_EQ(plan_buckets(module, {}).parameters.size(), 4u);
}

TEST(BucketPlan, EveryBucketIsCutAmongTheRanks) {
  const Four module;
  const BucketPlan plan =
      plan_buckets(module, {.bucket_bytes = 128, .partition = {.num_ranks = 3}});
  ASSERT_EQ(plan.cuts.size(), plan.buckets.size());
  for (size_t b = 0; b < plan.cuts.size(); ++b) {
    EXPECT_EQ(plan.cuts[b].size(), 4u);
    EXPECT_EQ(plan.cuts[b].front(), 0);
    EXPECT_EQ(plan.cuts[b].back(), plan.buckets[b].num_elements);
  }
}

TEST(BucketPlan, NamesAUnitWithAForeignOrASharedParameter) {
  const Four module;
  const Four other;
  EXPECT_THAT(refusal(module, {other.unit("strange", {"a"})}),
              AllOf(HasSubstr("unit \"strange\""), HasSubstr("[16]")));
  EXPECT_THAT(refusal(module, {module.unit("first", {"a"}), module.unit("second", {"a", "b"})}),
              AllOf(HasSubstr("parameter \"a\""), HasSubstr("\"first\" and in \"second\"")));
}

TEST(BucketPlan, AModuleWithoutParametersHasNone) {
  EXPECT_THAT(plan_buckets(torch::nn::Module(), {}).buckets, IsEmpty());
}

}  // namespace
}  // namespace trireme::parallel
