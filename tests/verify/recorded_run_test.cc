#include "trireme/verify/recorded_run.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/verify/recorded.h"
#include "trireme/base/error.h"

namespace trireme::verify {
namespace {

RecordedStep step_of(double value) {
  return {.loss = value,
          .gradients = {{"b.weight", at::full({2, 3}, value)}, {"a.weight", at::full({4}, value)}},
          .checkpoint = {{"a.weight", at::full({4}, value)}}};
}

TEST(RecordedRun, HasStepsTensorsAndNumbers) {
  const harness::TemporaryFolder folder;
  write_run(folder.path() / "run", {"b.weight", "a.weight"}, {step_of(1.5), step_of(2.5)});
  const RecordedRun run(folder.path() / "run");
  EXPECT_EQ(run.num_steps(), 2);
  EXPECT_EQ(run.parameters(), (std::vector<std::string>{"b.weight", "a.weight"}));
  EXPECT_EQ(run.metric(2, "loss"), 2.5);
  EXPECT_TRUE(std::isnan(run.metric(3, "loss")));
  EXPECT_TRUE(std::isnan(run.metric(1, "none")));
  EXPECT_TRUE(at::equal(run.gradients(1)->read("b.weight"), at::full({2, 3}, 1.5)));
  EXPECT_TRUE(at::equal(run.checkpoint(2)->read("a.weight"), at::full({4}, 2.5)));
}

TEST(RecordedRun, HasActivationsWithTheirOrderAndReplicas) {
  const harness::TemporaryFolder folder;
  RecordedStep step = step_of(1.5);
  step.activations = {{"b", at::full({2}, 3.0)}, {"a", at::full({2}, 4.0)}};
  step.order = {"b", "a"};
  step.replicas = {{"a", {{"ranks", {1, 3}}, {"absolute", 0.5}, {"relative", nullptr}}}};
  write_run(folder.path() / "run", {"b.weight", "a.weight"}, {step, step_of(2)});
  const RecordedRun run(folder.path() / "run");
  const auto found = run.activations(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->order, step.order);
  EXPECT_EQ(found->left_out, std::vector<std::string>{"late"});
  EXPECT_TRUE(at::equal(found->tensors->read("a"), at::full({2}, 4.0)));
  ASSERT_EQ(found->replicas.size(), 1U);
  EXPECT_EQ(found->replicas.at("a").ranks, (std::vector{1, 3}));
  EXPECT_EQ(found->replicas.at("a").absolute, 0.5);
  EXPECT_TRUE(std::isinf(found->replicas.at("a").relative));
  EXPECT_FALSE(run.activations(2));
}

TEST(RecordedRun, RefusesAStateOfAnotherForm) {
  const harness::TemporaryFolder folder;
  RecordedStep step = step_of(1);
  step.activations = {{"a", at::full({2}, 4.0)}};
  step.replicas = {{"a", {{"ranks", {-1}}, {"absolute", 0}, {"relative", 0}}}};
  write_run(folder.path() / "run", {"a.weight"}, {step});
  EXPECT_THROW(RecordedRun(folder.path() / "run").activations(1), ConfigError);
}

TEST(RecordedRun, CountsStepsThatHaveBoth) {
  const harness::TemporaryFolder folder;
  write_run(folder.path() / "run", {"b.weight"}, {step_of(1), step_of(2), step_of(3)});
  std::filesystem::remove_all(folder.path() / "run/checkpoints/step-000002");
  EXPECT_EQ(RecordedRun(folder.path() / "run").num_steps(), 1);
  std::filesystem::remove_all(folder.path() / "run/checkpoints/step-000001");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { RecordedRun(folder.path() / "run"); }),
              testing::HasSubstr("no checkpoint of step 1"));
}

TEST(RecordedRun, RefusesAFolderWithoutRecords) {
  const harness::TemporaryFolder folder;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { RecordedRun(folder.path() / "none"); }),
              testing::HasSubstr("record.gradients"));
  save_tensors(folder.path() / "run/gradients", 1, {{"a", at::zeros({2})}}, R"({"parameters": 3})");
  EXPECT_THROW(RecordedRun(folder.path() / "run"), ConfigError);
}

}  // namespace
}  // namespace trireme::verify
