#include "trireme/watch/serve/answers.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/watch/serve/small_run.h"
#include "trireme/base/error.h"
#include "trireme/train/metrics/rank_series.h"
#include "trireme/watch/serve/file_answers.h"
#include "trireme/watch/serve/rank_answers.h"
#include "trireme/watch/serve/run_answers.h"
#include "trireme/watch/serve/run_summary.h"
#include "trireme/watch/serve/series_answers.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

// As the page reads it.
ordered_json asked(RunList& runs, const std::string& path, const Parameters::Pairs& pairs = {}) {
  return ordered_json::parse(to_line(answer(runs, path, pairs)));
}

TEST(Answers, EveryPathAnswersWithoutAnyParameterItCanDoWithout) {
  SmallRun small;
  for (const std::string& path : answer_paths()) {
    if (path == "/api/series") continue;
    EXPECT_TRUE(asked(small.runs(), path).is_object()) << path;
  }
  EXPECT_THROW(answer(small.runs(), "/api/none", {}), ConfigError);
  EXPECT_THROW(answer(small.runs(), "/api/run", Parameters::Pairs{{"run", "1"}}), ConfigError);
}

TEST(Answers, TheListOfRunsHasTheLastNumbers) {
  SmallRun small;
  const auto row = asked(small.runs(), "/api/runs")["runs"][0];
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["step"], 3);
  EXPECT_EQ(row["steps"], 3);
  EXPECT_EQ(row["loss"], 1.25);
  EXPECT_EQ(row["units_per_second"], 10);
  EXPECT_EQ(row["unit"], "tokens");
}

TEST(Answers, ARunIsToldWhole) {
  SmallRun small;
  const auto run = asked(small.runs(), "/api/run");
  EXPECT_EQ(run["ranks"], 2);
  EXPECT_EQ(run["axes"], ordered_json::parse(R"([{"name":"data","size":2}])"));
  EXPECT_EQ(run["coordinates"], ordered_json::parse("[[0],[1]]"));
  EXPECT_EQ(run["first_step"], 1);
  EXPECT_EQ(run["last_step"], 3);
  EXPECT_EQ(run["scalars"][0]["name"], "loss");
  EXPECT_EQ(run["alerts"][0]["kind"], "nan");
  EXPECT_NE(run["config"].get<std::string>().find("steps = 3"), std::string::npos);
  EXPECT_NE(run["summary"].get<std::string>().find("finished"), std::string::npos);
}

TEST(Answers, SeriesHaveNullWhereNothingIsFinite) {
  SmallRun small;
  const auto series = asked(small.runs(), "/api/series",
                            {{"name", "loss"},
                             {"name", "tokens_per_expert/1"},
                             {"name", "none"},
                             {"from", "1"}})["series"];
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series[0]["steps"], ordered_json::parse("[1,2,3]"));
  EXPECT_EQ(series[0]["mean"], ordered_json::parse("[3.0,null,1.25]"));
  EXPECT_EQ(series[1]["mean"], ordered_json::parse("[2.0]"));
  EXPECT_EQ(series[2]["count"], 0);
  EXPECT_THROW(answer(small.runs(), "/api/series", {}), ConfigError);
  EXPECT_THROW(
      answer(small.runs(), "/api/series", Parameters::Pairs{{"name", "a"}, {"points", "0"}}),
      ConfigError);
}

TEST(Answers, ExpertsOfTheStepOrTheOneBefore) {
  SmallRun small;
  EXPECT_EQ(asked(small.runs(), "/api/experts", {{"step", "1"}})["lists"][0]["values"],
            ordered_json::parse("[1.0,2.0]"));
  EXPECT_EQ(asked(small.runs(), "/api/experts", {{"step", "99"}})["step"], 3);
  EXPECT_EQ(asked(small.runs(), "/api/experts", {{"step", "0"}})["step"], 1);
}

TEST(Answers, RanksWaitsAndStragglersComeFromTheSeries) {
  SmallRun small;
  train::SeriesBlock block{.shape = {.num_ranks = 2, .columns = {"step_seconds", "own_seconds"}},
                           .steps = {1, 2},
                           .values = {0.5F, 0.1F, 0.5F, 0.4F, 0.6F, 0.1F, 0.6F, 0.5F}};
  const train::WaitBlock waits{
      .records = {{.step = 2, .axis = "data", .waiter = 0, .awaited = 1, .seconds = 0.75F}}};
  std::filesystem::create_directories(small.folder / train::kSeriesFolder);
  small.put(concat(train::kSeriesFolder, "/", train::kSeriesName),
            train::to_bytes(block) + train::to_bytes(waits));
  const auto ranks = asked(small.runs(), "/api/ranks", {{"column", "own_seconds"}, {"step", "2"}});
  EXPECT_EQ(ranks["step"], 2);
  EXPECT_EQ(ranks["values"], ordered_json::parse("[0.1,0.5]"));
  EXPECT_EQ(ranks["median_by_stage"], ordered_json::parse("[0.3,0.3]"));
  EXPECT_EQ(asked(small.runs(), "/api/waits")["entries"][0]["seconds"], 0.75);
  EXPECT_TRUE(asked(small.runs(), "/api/waits", {{"to", "1"}})["entries"].empty());
  const auto without = asked(small.runs(), "/api/straggler", {{"rank", "1"}});
  EXPECT_NEAR(without["step_seconds"], 0.55, 1e-6);
  EXPECT_NEAR(without["without"], 0.2, 1e-6);
  EXPECT_NEAR(without["without_units_per_second"], 27.5, 1e-4);
  EXPECT_EQ(
      asked(small.runs(), "/api/series", {{"name", "rank/1/own_seconds"}})["series"][0]["count"],
      2);
  EXPECT_EQ(asked(small.runs(), "/api/run")["rank_columns"],
            ordered_json::parse(R"(["step_seconds","own_seconds"])"));
  EXPECT_THROW(answer(small.runs(), "/api/straggler", Parameters::Pairs{{"rank", "2"}}),
               ConfigError);
}

TEST(Answers, EventsAndLogLinesNearATime) {
  SmallRun small;
  const auto events = asked(small.runs(), "/api/events")["events"];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["event"], "start");
  EXPECT_TRUE(asked(small.runs(), "/api/events", {{"to_time", "5"}})["events"].empty());
  const double time = events[0]["time"];
  const auto lines =
      asked(small.runs(), "/api/log", {{"rank", "0"}, {"time", std::to_string(time)}})["lines"];
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["text"], "hello");
  EXPECT_TRUE(asked(small.runs(), "/api/log", {{"rank", "1"}})["lines"].empty());
  EXPECT_EQ(asked(small.runs(), "/api/log", {{"most", "1"}})["lines"][0]["text"], "there");
}

TEST(Answers, TracesAreNamedByTheFolderAndNotByTheRequest) {
  SmallRun small;
  const auto files = asked(small.runs(), "/api/profile")["files"];
  EXPECT_EQ(files[0]["url"], "/api/trace?run=0&name=trace.json");
  comm::HttpResponse trace = trace_answer(small.runs(), Parameters::Pairs{{"name", "trace.json"}});
  EXPECT_EQ(trace.pieces->next().bytes, "{\"traceEvents\":[]}");
  for (const char* name : {"../config.toml", "", ".", "/etc/passwd", "trace.json/"}) {
    EXPECT_THROW(trace_answer(small.runs(), Parameters::Pairs{{"name", name}}), ConfigError)
        << name;
  }
}

TEST(Answers, ComparesConfigs) {
  SmallRun small;
  EXPECT_TRUE(asked(small.runs(), "/api/compare", {{"runs", "0,0"}})["differences"].empty());
  for (const char* text : {"0,1", "x", "0,,", "-1"})
    EXPECT_THROW(answer(small.runs(), "/api/compare", Parameters::Pairs{{"runs", text}}),
                 ConfigError)
        << text;
}

TEST(Answers, TheMemorySnapshotIsShownIfItIsWhole) {
  SmallRun small;
  std::filesystem::create_directories(small.folder / "memory");
  small.put("memory/rank-00001.json",
            R"({"step":3,"rank":1,"total_bytes":9,"largest":[{"bytes":5,"kind":"weights",)"
            R"("operator":"empty","unit":"layers.0"}]})");
  EXPECT_EQ(asked(small.runs(), "/api/memory")["largest"][0]["bytes"], 5);
  EXPECT_EQ(asked(small.runs(), "/api/memory", {{"rank", "1"}})["rank"], 1);
  EXPECT_TRUE(asked(small.runs(), "/api/memory", {{"rank", "0"}}).empty());
  small.put("memory/rank-00001.json", "{\"step\":3");
  EXPECT_TRUE(asked(small.runs(), "/api/memory").empty());
}

TEST(Answers, WhatWasPredictedIsShown) {
  SmallRun small;
  EXPECT_TRUE(asked(small.runs(), "/api/run")["predicted"].is_null());
  small.put("prediction.json", R"({"step_seconds":0.25,"memory_weights_bytes":8})");
  EXPECT_EQ(asked(small.runs(), "/api/run")["predicted"],
            ordered_json::parse(R"({"memory_weights_bytes":8.0,"step_seconds":0.25})"));
}

}  // namespace
}  // namespace trireme::watch
