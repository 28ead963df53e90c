#include "trireme/train/callbacks/operator_watch.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

const double kInfinite = std::numeric_limits<double>::infinity();

class OperatorWatchTest : public testing::Test {
 protected:
  at::Tensor first_ = at::linspace(-1, 1, 6, at::kDouble).view({2, 3}).requires_grad_();
  at::Tensor second_ = at::linspace(1, 2, 4, at::kDouble).view({2, 2}).requires_grad_();
  NamedParameters parameters_ = {{"model.first.weight", first_}, {"model.second.weight", second_}};
  at::Tensor x_ = at::ones({1, 3}, at::kDouble);

  at::Tensor forward() const { return at::linear(at::linear(x_, first_).tanh(), second_); }
};

TEST_F(OperatorWatchTest, FiniteOperatorsAreCountedAndNothingIsFound) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  forward().sum().backward();
  EXPECT_FALSE(watch.finding());
  EXPECT_GT(watch.num_operators(), 5);
}

TEST_F(OperatorWatchTest, TheFirstNanIsNamedWithItsUnitAndItsInputsAsTheyWere) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  const at::Tensor y = at::linear(x_, first_);
  at::Tensor root = y - 100;
  root.sqrt_();
  at::linear(root, second_).sum().backward();
  ASSERT_TRUE(watch.finding());
  const OperatorFinding& found = *watch.finding();
  EXPECT_EQ(found.what, BadValue::kNan);
  EXPECT_EQ(found.name, "aten::sqrt_");
  EXPECT_EQ(found.unit, "model.first");
  EXPECT_FALSE(found.reads_unit);
  EXPECT_FALSE(found.is_backward);
  ASSERT_EQ(found.inputs.size(), 1U);
  EXPECT_EQ(found.inputs[0].num_nan, 0);
  EXPECT_EQ(found.outputs[0].num_nan, 2);
  EXPECT_TRUE(at::equal(found.tensors.at("input.0"), (y - 100).detach()));
}

TEST_F(OperatorWatchTest, AnOperatorOfTheBackwardPassHasTheUnitOfItsForward) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  const at::Tensor zero = at::linear(x_, first_) * 0;
  const at::Tensor y = at::linear(zero.sqrt(), second_);  // the root's derivative at 0 is infinite
  y.sum().backward();
  ASSERT_TRUE(watch.finding());
  EXPECT_TRUE(watch.finding()->is_backward);
  EXPECT_EQ(watch.finding()->what, BadValue::kInfinity);
  EXPECT_EQ(watch.finding()->unit, "model.first");
  ASSERT_FALSE(watch.finding()->within.empty());
  EXPECT_NE(watch.finding()->within.front().find("SqrtBackward"), std::string::npos);
}

TEST_F(OperatorWatchTest, AnOperatorThatReadsAParameterIsInItsUnit) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  static_cast<void>(at::linear(x_, first_));
  static_cast<void>(at::linear(at::full({1, 2}, 1e308, at::kDouble), second_));
  ASSERT_TRUE(watch.finding());
  EXPECT_EQ(watch.finding()->what, BadValue::kInfinity);
  EXPECT_EQ(watch.finding()->unit, "model.second");
  EXPECT_TRUE(watch.finding()->reads_unit);
}

// A mask is made of infinities, and what it is added to has them too.
TEST_F(OperatorWatchTest, AnInfinityThatWasGivenIsNoFinding) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  const at::Tensor mask = at::full({2, 2}, -kInfinite, at::kDouble).triu(1);
  const at::Tensor scores = at::ones({2, 2}, at::kDouble) + mask;
  EXPECT_FALSE(at::softmax(scores, -1).isnan().any().item<bool>());
  EXPECT_FALSE(watch.finding());
}

TEST_F(OperatorWatchTest, MemoryThatWasNotWrittenIsNoFinding) {
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  at::Tensor memory = at::empty({64}, at::kDouble);
  memory.narrow(0, 0, 64).copy_(at::ones({64}, at::kDouble));
  EXPECT_FALSE(watch.finding());
}

// As the memory that a product writes to, which passes through resolve_conj().
TEST_F(OperatorWatchTest, WhatIsReturnedAsItWasIsNoFinding) {
  at::Tensor foreign = at::ones({2}, at::kDouble);
  *foreign.mutable_data_ptr<double>() = std::numeric_limits<double>::quiet_NaN();
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  static_cast<void>(foreign.resolve_conj());
  EXPECT_FALSE(watch.finding());
  at::log_out(foreign, at::full({2}, -1.0, at::kDouble));
  ASSERT_TRUE(watch.finding());
  EXPECT_EQ(watch.finding()->what, BadValue::kNan);
}

TEST_F(OperatorWatchTest, ANanFromOutsideIsGiven) {
  at::Tensor foreign = at::ones({2}, at::kDouble);
  *foreign.mutable_data_ptr<double>() = std::numeric_limits<double>::quiet_NaN();
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  static_cast<void>(foreign + 1);
  ASSERT_TRUE(watch.finding());
  EXPECT_EQ(watch.finding()->what, BadValue::kGiven);
}

TEST_F(OperatorWatchTest, ASpikeIsComparedWithTheSameOperatorBefore) {
  for (const double spike : {0.0, 50.0, 5000.0}) {
    OperatorWatch watch(parameters_, spike);
    watch.begin_baseline();
    static_cast<void>(at::linear(x_, first_).tanh());
    watch.begin_step();
    static_cast<void>(at::linear(x_ * 1000, first_).tanh());
    EXPECT_EQ(watch.finding().has_value(), spike == 50.0);
    if (!watch.finding()) continue;
    EXPECT_EQ(watch.finding()->what, BadValue::kSpike);
    EXPECT_GE(watch.finding()->ratio, 500);
  }
}

TEST_F(OperatorWatchTest, NothingIsSeenAfterwards) {
  { const OperatorWatch watch(parameters_, 0); }
  OperatorWatch watch(parameters_, 0);
  static_cast<void>(at::zeros({1}).log());  // before the step begins
  EXPECT_FALSE(watch.finding());
}

TEST_F(OperatorWatchTest, GradientsHaveTheSameBitsAsUnwatched) {
  forward().sum().backward();
  const at::Tensor plain = first_.grad().clone();
  first_.mutable_grad() = at::Tensor();
  OperatorWatch watch(parameters_, 0);
  watch.begin_step();
  forward().sum().backward();
  EXPECT_TRUE(at::equal(first_.grad(), plain));
}

TEST(TensorFactsTest, CountWhatIsNotFiniteAndMeasureTheRest) {
  const at::Tensor values =
      at::tensor({-2.0, 4.0, kInfinite, std::numeric_limits<double>::quiet_NaN()}, at::kDouble);
  const TensorFacts facts = facts_of("input.0", values);
  EXPECT_EQ(facts.num_nan, 1);
  EXPECT_EQ(facts.num_infinite, 1);
  EXPECT_EQ(facts.minimum, -2);
  EXPECT_EQ(facts.maximum, 4);
  EXPECT_EQ(facts.mean_magnitude, 3);
  EXPECT_EQ(facts_of("none", at::empty({0})).maximum, 0);
}

}  // namespace
}  // namespace trireme::train
