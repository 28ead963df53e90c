#include "trireme/train/task/predictor.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/dataset/rows/row_source.h"

namespace trireme::train {
namespace {

std::vector<std::string> names_of_classes(const Answer& answer) {
  std::vector<std::string> names;
  for (const Answer::Class& each : answer.classes) names.push_back(each.name);
  return names;
}

TEST(ClassAnswers, AreTheMostProbableClassesFirst) {
  const at::Tensor logits =
      at::tensor({0.0F, std::log(3.0F), 0.0F, -100.0F, 9.0F, 9.0F}).view({2, 3});
  const std::vector<std::string> names = {"a", "b", "c"};
  const std::vector<Answer> two = class_answers(logits, names, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(names_of_classes(two[0]), (std::vector<std::string>{"b", "a"}));
  EXPECT_NEAR(two[0].classes[0].probability, 0.6, 1e-7);
  EXPECT_EQ(names_of_classes(two[1]), (std::vector<std::string>{"b", "c"}))
      << "the first of equals";
  EXPECT_EQ(class_answers(logits, names, 0)[0].classes.size(), 3U);
  EXPECT_EQ(class_answers(logits, names, 9)[0].classes.size(), 3U);
}

TEST(ClassAnswers, AClassWithoutANameHasItsNumber) {
  const std::vector<std::string> names = {"a"};
  const auto answers = class_answers(at::tensor({0.0, 1.0}).view({1, 2}), names, 0);
  EXPECT_EQ(names_of_classes(answers.at(0)), (std::vector<std::string>{"1", "a"}));
}

TEST(ClassAnswers, ProbabilitiesAreInFp64WhateverTheLogitsAre) {
  const at::Tensor logits = at::randn({4, 5}).to(at::kBFloat16);
  const at::Tensor sums = class_probabilities(logits).sum(1);
  EXPECT_EQ(sums.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(sums, at::ones({4}, at::kDouble), 0, 1e-15));
  EXPECT_TRUE(class_answers(logits.narrow(0, 0, 0), {}, 1).empty());
}

TEST(ClickAnswers, AreTheLogisticFunctionOfTheLogits) {
  const std::vector<Answer> answers = click_answers(at::tensor({0.0F, -std::log(3.0F)}));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].numbers.at(0).first, "probability");
  EXPECT_EQ(answers[0].numbers[0].second, 0.5);
  EXPECT_NEAR(answers[1].numbers.at(0).second, 0.25, 1e-7);
}

}  // namespace
}  // namespace trireme::train
