// Recommendation models whose tables, or all parameters, are on parameter servers.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tasks/recommend/small_recommend.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::tasks {
namespace {

using ::testing::HasSubstr;
using train::Outcome;
using train::RunConfig;

class TableServers : public SmallRecommend {
 protected:
  RunConfig config(const std::string& run, const Overrides& overrides = {}) const {
    return small_config(
        run, "clicks",
        {{"model.family", "dlrm"}, {"train.steps", "6"}, {"train.gradient_clip", "0"}}, overrides);
  }
  RunConfig mixed(const std::string& run, int64_t servers, int64_t staleness,
                  Overrides overrides = {}) const {
    overrides.push_back({"parallel.served", "tables"});
    return served(run, servers, staleness, std::move(overrides));
  }
  RunConfig served(const std::string& run, int64_t servers, int64_t staleness,
                   Overrides overrides = {}) const {
    overrides.push_back({"parallel.servers", std::to_string(servers)});
    overrides.push_back({"parallel.staleness", std::to_string(staleness)});
    return config(run, std::move(overrides));
  }

  void expect_same(const std::string& actual, const std::string& expected, double relative) const {
    expect_same_results(actual, expected, relative);
  }
  // The tensors of the newest checkpoint.
  std::map<std::string, at::Tensor> saved(const std::string& run) const {
    return checkpoint::load_global(*checkpoint::latest(folder_ / run / "checkpoints"));
  }
  void expect_same_tables(const std::string& actual, const std::string& expected) const {
    const auto found = saved(actual), wanted = saved(expected);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, values] : wanted) {
      EXPECT_TRUE(at::equal(found.at(name), values)) << actual << ": " << name;
    }
  }
};

// A worker's samples are a power of two, so the tree over all samples has each worker's sum.
TEST_F(TableServers, InStepHaveTheBitsOfARunWithoutServers) {
  for (const char* const rule : {"sgd", "adagrad", "rowwise-adagrad", "lazy-adam"}) {
    const Overrides keys{{"tables.optimizer", rule}, {"train.evaluate_interval", "2"}};
    for (const int workers : {1, 2}) {
      const std::string plain = concat("plain-", rule, workers),
                        name = concat("mixed-", rule, workers);
      run(config(plain, keys), workers);
      run(mixed(name, /*servers=*/workers, 0, keys), 2 * workers);
      expect_same(name, plain, 0);
      expect_same_tables(name, plain);
    }
  }
}

TEST_F(TableServers, InStepAgreeForAnyNumberOfWorkers) {
  for (const int workers : {3, 4}) {
    const std::string plain = concat("plain", workers), name = concat("mixed", workers);
    const Overrides keys{{"train.global_batch", concat(8 * workers)},
                         {"train.evaluate_interval", "2"}};
    run(config(plain, keys), workers);
    run(mixed(name, 2, 0, keys), workers + 2);
    expect_same(name, plain, 1e-10);
  }
}

// In microbatches of 4: ranks of 4, 4 and 1 samples, and of 4, 1 and none.
TEST_F(TableServers, InStepAgreeWhereSomeWorkersHaveLessToDo) {
  for (const char* const batch : {"9", "5"}) {
    const Overrides keys{{"train.global_batch", batch},
                         {"train.uneven_batches", "true"},
                         {"train.evaluate_interval", "2"}};
    run(config(concat("plain", batch), keys), 3);
    run(mixed(concat("mixed", batch), 2, 0, keys), 5);
    expect_same(concat("mixed", batch), concat("plain", batch), 1e-10);
    run(mixed(concat("asynchronous", batch), 2, -1, keys), 5);
    const auto lines = metrics(concat("asynchronous", batch));
    ASSERT_EQ(lines.size(), 6U);
    for (const auto& line : lines) EXPECT_TRUE(line["loss"].is_number());
  }
}

TEST_F(TableServers, ServeARetrievalModelWithZero) {
  const Overrides keys{{"data.path", (folder_ / "pairs").string()},
                       {"model.family", "two-tower"},
                       {"model.temperature", "0.2"},
                       {"parallel.gradient_order", "rank-first"},
                       {"train.evaluate_interval", "2"}};
  run(config("plain", keys), 2);
  for (const char* const zero : {"1", "2", "3"}) {
    Overrides more = keys;
    more.push_back({"parallel.zero", zero});
    run(mixed(concat("zero", zero), 2, 0, more), 4);
    expect_same(concat("zero", zero), "plain", 0);
  }
}

TEST_F(TableServers, ChainsOfTwoChangeNoBit) {
  run(config("plain"), 2);
  run(mixed("mixed", 3, 0, {{"parallel.server_copies", "2"}}), 5);
  ASSERT_FALSE(findings_.empty());
  EXPECT_THAT(findings_.back(), HasSubstr("tables  on 3 servers; mean per step"));
  expect_same("mixed", "plain", 0);
  expect_same_tables("mixed", "plain");
}

TEST_F(TableServers, ACheckpointGoesOnWithOtherServersOrNone) {
  const Overrides keys{{"tables.optimizer", "adagrad"}};
  run(config("plain", keys), 2);
  run(mixed("run", 2, 0, keys), 4, /*stop_after=*/2);
  run(mixed("run", 1, 0, keys), 3, /*stop_after=*/4);
  run(config("run", keys), 2);
  expect_same("run", "plain", 0);
  run(config("other", keys), 2, /*stop_after=*/3);
  run(mixed("other", 3, 0, keys), 5);
  expect_same("other", "plain", 0);
  expect_same_tables("other", "plain");
}

TEST_F(TableServers, BeginWithTheTablesOfAnotherRun) {
  run(config("first"), 2);
  const Overrides init{{"init.folder", (folder_ / "first").string()}};
  run(config("plain", init), 2);
  run(mixed("mixed", 2, 0, init), 4);
  expect_same("mixed", "plain", 0);
}

TEST_F(TableServers, AsynchronousTablesLearnAndAreReplayedBitForBit) {
  for (const char* const staleness : {"3", "-1"}) {
    const Overrides keys{{"train.steps", "16"},
                         {"train.global_batch", "24"},
                         {"train.evaluate_interval", "5"},
                         {"checkpoint.interval", "6"}};
    const std::string first = concat("first", staleness), again = concat("again", staleness);
    EXPECT_EQ(run(mixed(first, 2, std::stoll(staleness), keys), 5), Outcome::kFinished);
    const auto lines = metrics(first);
    ASSERT_EQ(lines.size(), 16U);
    EXPECT_LT(lines.back()["loss"], lines.front()["loss"]);
    Overrides replay = keys;
    replay.push_back({"parallel.replay", (folder_ / first / "server-log").string()});
    run(mixed(again, 2, std::stoll(staleness), replay), 5);
    expect_same(again, first, 0);
    expect_same_tables(again, first);
  }
}

TEST_F(TableServers, OfAllParametersHaveTheBitsOfARunWithoutServers) {
  for (const int workers : {1, 2}) {
    run(config(concat("plain", workers)), workers);
    run(served(concat("all", workers), 2, 0), workers + 2);
    expect_same(concat("all", workers), concat("plain", workers), 0);
    expect_same_tables(concat("all", workers), concat("plain", workers));
  }
  run(served("run", 2, 0), 4, /*stop_after=*/2);
  run(served("run", 1, 0), 3, /*stop_after=*/4);
  run(config("run"), 2);
  expect_same("run", "plain2", 0);
}

TEST_F(TableServers, OfAllParametersMayBeAsynchronous) {
  run(served("run", 2, -1, {{"train.steps", "16"}}), 4);
  const auto lines = metrics("run");
  EXPECT_LT(lines.back()["loss"], lines.front()["loss"]);
}

TEST_F(TableServers, RefuseWhatTheyCannotInOneLine) {
  const std::vector<std::pair<train::Override, std::string>> refused{
      {{"tables.placement", "columns"}, "tables.placement"},
      {{"tables.memory", "4096"}, "tables.memory"},
      {{"tables.optimizer", "adam"}, "lazy-adam"},
      {{"train.reproducible", "true"}, "train.reproducible"},
      {{"parallel.auto", "true"}, "parallel.auto"},
      {{"parallel.server_copies", "3"}, "server_copies"}};
  for (const auto& [key, part] : refused) {
    const std::string text = refusal_of(
        [&] {
          return mixed("broken", 2, 0, {{"train.gradient_clip", "0"}, key});
        },
        4);
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_THAT(refusal_of(
                  [&] {
                    return config("broken", {{"parallel.served", "tables"}});
                  },
                  2),
              HasSubstr("without parallel.servers"));
}

}  // namespace
}  // namespace trireme::tasks
