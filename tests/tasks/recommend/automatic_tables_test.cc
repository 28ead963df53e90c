#include "trireme/tasks/recommend/automatic_tables.h"

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/tasks/recommend/feature_folder.h"
#include "tests/train/small_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/tasks.h"

namespace trireme::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AutomaticTables : public train::SmallRun {
 protected:
  AutomaticTables() { harness::write_label_folder(folder_ / "clicks", 2); }

  train::RunConfig config(std::vector<train::Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "clicks").string()},
                                         {"output.folder", (folder_ / "run").string()}});
    return train::parse_config(R"(
[task]
name = "recommend"
[model]
width = 6
bottom = "7"
top = "9"
[tables]
placement = "auto"
[train]
steps = 4
global_batch = 32
micro_batch = 8
[optimizer]
name = "adamw"
learning_rate = 1e-2
[checkpoint]
interval = 2
)",
                               "test.toml", all_tasks(), overrides);
  }

  RecommendProblem problem(train::RunConfig& config) const {
    config.task->open(/*evaluates=*/false);
    return {.config = recommend_of(config), .schema = dataset::read_schema(folder_ / "clicks")};
  }
};

TEST_F(AutomaticTables, AreMeasuredInTheOrderOfTheModel) {
  train::RunConfig run = config({{"model.family", "wide-deep"}, {"tables.optimizer", "adagrad"}});
  const MeasuredTables measured = measure_tables(run, 2, nullptr);
  std::vector<std::string> names;
  for (const plan::TableLoad& load : measured.loads) names.push_back(load.name);
  EXPECT_THAT(names, ElementsAre("embedding.user", "embedding.words", "embedding.shop", "wide.user",
                                 "wide.words", "wide.shop"));
  EXPECT_EQ(measured.loads[1].rows, 29);
  EXPECT_EQ(measured.loads[1].bytes(), 29 * 6 * 4 * 2);
  EXPECT_EQ(measured.loads[4].width, 1);
  EXPECT_EQ(measured.statistics[1].ids_per_sample, measured.statistics[4].ids_per_sample);
  train::resolve(run, 2);
  EXPECT_GT(dense_bytes(run), 0);
}

TEST_F(AutomaticTables, MayBeOpen) {
  train::RunConfig some = config({{"tables.open", "words"}, {"tables.open_max_rows", "9"}});
  const MeasuredTables measured = measure_tables(some, 2, nullptr);
  EXPECT_EQ(measured.loads[0].num_rows(), 11);
  EXPECT_EQ(measured.loads[1].num_rows(), 9) << "the limit";
  EXPECT_EQ(measured.loads[1].rows, parallel::kOpenRows);
  EXPECT_EQ(assume_tables(some, 2, 1.1).loads[1].num_rows(), 9);
  harness::write_label_folder(folder_ / "clicks", 2, /*user_rows=*/11, /*is_hashed=*/true);
  train::RunConfig all = config({{"tables.open", "all"}});
  EXPECT_EQ(measure_tables(all, 2, nullptr).loads[0].num_rows(), 11);
  EXPECT_THAT(harness::message_of<ConfigError>([&] { assume_tables(all, 2, 1.1); }),
              HasSubstr("set tables.open_max_rows, or plan without --zipf"));
}

TEST_F(AutomaticTables, AreTheSameOnAllRanks) {
  train::RunConfig run = config();
  const RecommendProblem found = problem(run);
  std::vector<std::string> texts(3);
  harness::run_ranks(3, [&](comm::Communicator& group) {
    const TableChoice choice = choose_tables(found, run.task->training(), run, 0, group);
    texts[static_cast<size_t>(group.rank())] = to_json(choice, tables_of(found, 3).tables);
  });
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
}

TEST_F(AutomaticTables, ThatFitNowhereAreRefusedOnAllRanks) {
  train::RunConfig run = config();
  const RecommendProblem found = problem(run);
  std::atomic<int> num_refused = 0;
  harness::run_ranks(2, [&](comm::Communicator& group) {
    const std::string message = harness::message_of<ConfigError>(
        [&] { choose_tables(found, run.task->training(), run, /*dense_bytes=*/1e18, group); });
    EXPECT_THAT(message, HasSubstr("the embedding tables with their optimizer states need"));
    ++num_refused;
  });
  EXPECT_EQ(num_refused, 2);
}

TEST_F(AutomaticTables, TrainAndStayInTheRunsFolder) {
  EXPECT_EQ(run(config(), 2, /*stop_after=*/3), train::Outcome::kStopped);
  ASSERT_FALSE(findings_.empty());
  EXPECT_THAT(findings_.front(), HasSubstr("tables  the planner's choice for 3 tables: "));
  EXPECT_THAT(findings_.back(), HasSubstr("busiest rank / mean: look-ups "));
  const std::string path = (folder_ / "run" / kTableChoiceFile).string();
  const std::string text = read_file(path);
  // A run that has begun keeps its placements: here others than the planner's.
  train::RunConfig again = config();
  const RecommendProblem found = problem(again);
  const auto tables = tables_of(found, 2).tables;
  TableChoice other = parse_choice(text, path, tables, 2);
  other.places.assign(3, {.split = plan::TableSplit::kReplicated});
  std::ofstream(path) << to_json(other, tables);
  run(config(), 2);
  EXPECT_THAT(findings_.front(), HasSubstr("3 tables: 3 replicated"));
  // With other ranks it chooses anew, and goes on.
  run(config({{"train.steps", "6"}}), 4);
  EXPECT_THAT(findings_.front(), testing::Not(HasSubstr("3 replicated")));
  EXPECT_EQ(metrics("run").size(), 6U);
  EXPECT_NE(read_file(path), text);
}

TEST_F(AutomaticTables, OfOneRankNeedNoPlan) {
  run(config(), 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / kTableChoiceFile));
}

}  // namespace
}  // namespace trireme::tasks
