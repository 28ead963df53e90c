#include "trireme/tasks/language/expert_report.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/train/callbacks/fake_run.h"
#include "trireme/model/experts/router.h"

namespace trireme::tasks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two sparse blocks, number 1 and 3 of the model, of three experts.
class ExpertReportTest : public testing::Test {
 protected:
  ExpertReportTest() {
    model::ModelConfig& model = train::model_of(run_.config_);
    model.layers = 4;
    model.sparse = {.experts = 3,
                    .experts_per_token = 2,
                    .expert_interval = 2,
                    .balance_loss = 0.01,
                    .capacity_factor = 1};
    run_.folder_ = folder_.path();
  }

  // assignments: of the three experts in each of the two blocks; 10 tokens.
  void step(const std::vector<std::vector<double>>& assignments) {
    const int64_t number = run_.metrics_.step + 1;
    run_.metrics_ = {};
    run_.metrics_.step = number;
    for (const auto& of_block : assignments) {
      std::vector<double>& counts = run_.metrics_.counts;
      counts.insert(counts.end(), of_block.begin(), of_block.end());
      for (const double rest : {10, 4, 5, 12, 0, 8}) counts.push_back(rest);
    }
    report_.on_step(run_);
  }
  double metric(const std::string& name) const {
    return train::find_metric(run_.metrics_, name).value();
  }

  harness::TemporaryFolder folder_;
  train::FakeRun run_;
  ExpertReport report_;
};

TEST_F(ExpertReportTest, ConcernsSparseModels) {
  EXPECT_TRUE(report_.concerns(run_.config_));
  EXPECT_FALSE(report_.concerns(train::language_config()));
  train::set_keys(report_, {{"experts.interval", 0}});
  EXPECT_FALSE(report_.concerns(run_.config_));
}

TEST_F(ExpertReportTest, AddsMeansOverTokensOfEachSparseBlock) {
  step({{10, 5, 5}, {0, 20, 0}});
  EXPECT_EQ(metric("expert_max_violation/1"), 0.5);
  EXPECT_EQ(metric("expert_max_violation/3"), 2);
  EXPECT_EQ(metric("expert_max_violation"), 2);
  EXPECT_EQ(metric("router_entropy/1"), 0.5);
  EXPECT_EQ(metric("dropped_share/3"), 4.0 / 20);
  EXPECT_EQ(metric("balance_loss/1"), 1.2);
  EXPECT_FALSE(train::find_metric(run_.metrics_, "router_z_loss/1"));  // its factor is 0
  EXPECT_THAT(run_.metrics_.lists,
              ElementsAre(testing::Pair("expert_tokens/1", ElementsAre(10, 5, 5)),
                          testing::Pair("expert_tokens/3", ElementsAre(0, 20, 0))));
}

TEST_F(ExpertReportTest, TellsHowManyTokensStayedWithCopies) {
  step({{10, 5, 5}, {0, 20, 0}});
  EXPECT_FALSE(train::find_metric(run_.metrics_, "copied_share/1"));
  run_.config_.parallel.expert_replicas = 1;
  step({{10, 5, 5}, {0, 20, 0}});
  EXPECT_EQ(metric("copied_share/1"), 8.0 / 20);
}

TEST_F(ExpertReportTest, IntervalLeavesStepsOut) {
  train::set_keys(report_, {{"experts.interval", 2}});
  step({{10, 5, 5}, {0, 20, 0}});
  EXPECT_TRUE(run_.metrics_.others.empty());
  step({{10, 5, 5}, {0, 20, 0}});
  EXPECT_FALSE(run_.metrics_.others.empty());
}

TEST_F(ExpertReportTest, WarnsOnceOfAnExpertThatStarves) {
  train::set_keys(report_, {{"experts.window", 2}});
  step({{10, 9, 1}, {7, 7, 6}});
  step({{10, 10, 0}, {7, 7, 6}});
  ASSERT_THAT(run_.lines_, ElementsAre(HasSubstr("layer 1 expert 2 (7.5 % of an even share)")));
  EXPECT_THAT(run_.lines_[0], HasSubstr("steps 1 to 2"));
  EXPECT_THAT(run_.lines_[0], HasSubstr("model.balance_loss"));
  for (int i = 0; i < 2; ++i) step({{10, 10, 0}, {7, 7, 6}});
  EXPECT_EQ(run_.lines_.size(), 1U);  // the user knows
  for (int i = 0; i < 2; ++i) step({{7, 7, 6}, {7, 7, 6}});
  for (int i = 0; i < 2; ++i) step({{10, 10, 0}, {7, 7, 6}});
  EXPECT_EQ(run_.lines_.size(), 2U);  // it starves again
}

TEST_F(ExpertReportTest, DrawsTheLastWindow) {
  const auto drawn = [&] {
    std::ifstream file(folder_.path() / "experts.svg");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  train::set_keys(report_, {{"experts.window", 2}});
  report_.on_stop(run_);  // nothing has been counted
  EXPECT_EQ(drawn(), "");
  step({{10, 5, 5}, {0, 20, 0}});
  report_.on_checkpoint(run_, {});
  EXPECT_THAT(drawn(), HasSubstr("steps 1 to 1"));
  for (int i = 0; i < 2; ++i) step({{10, 5, 5}, {0, 20, 0}});
  report_.on_stop(run_);
  EXPECT_THAT(drawn(), HasSubstr("steps 1 to 2"));
  EXPECT_THAT(drawn(), HasSubstr("layer 3, expert 1: 3 of an even share"));
}

}  // namespace
}  // namespace trireme::tasks
