#include "trireme/train/profile/profile_report.h"

#include <chrono>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/profile/synthetic.h"

namespace trireme::train {
namespace {

using nlohmann::json;

json trace_of(const std::vector<RankProfile>& ranks) {
  const auto states = states_of(ranks);
  return json::parse(chrome_trace(ranks, states, make_report(ranks, states)));
}

// The events that draw something.
std::vector<json> slices(const json& trace, int rank) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("pid") == rank) found.push_back(event);
  }
  return found;
}

json slice_named(const json& trace, int rank, const std::string& name) {
  for (const json& event : slices(trace, rank)) {
    if (event.at("name") == name) return event;
  }
  return nullptr;
}

std::map<std::pair<int, int>, std::string> row_names(const json& trace) {
  std::map<std::pair<int, int>, std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "thread_name") {
      names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  return names;
}

RankProfile busy_rank(int rank) {
  RankProfile profile = one_step(rank, 1'000'000);
  profile.host = "host";
  profile.operators = {{"aten::mm", {200'000, 300'500}, 0, -1, 64},
                       {"trireme::wait", {700'000, 710'000}},
                       {"aten::add", {400'000, 500'000}, 5}};
  profile.calls = {{"all_reduce", 0, 1, 4096, 390'000, {400'000, 705'000}, true},
                   {"send", 0, 1, 16, 500'000, {500'000, 600'000}, true, true},
                   {"all_reduce", 0, 2, 8, 900'000, {900'000, 950'000}, false}};
  return profile;
}

TEST(Trace, HoldsEveryRankAsAProcessWithNamedRows) {
  const json trace = trace_of({busy_rank(0), busy_rank(1)});
  std::map<int, std::string> processes;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") {
      processes[event.at("pid")] = event.at("args").at("name");
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0 on host"}, {1, "rank 1 on host"}}));
  const auto names = row_names(trace);
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_TRUE(names.contains({event.at("pid"), event.at("tid")})) << event;
  }
  std::multiset<std::string> rows;
  for (const auto& [row, name] : names) {
    if (row.first == 1) rows.insert(name);
  }
  EXPECT_EQ(rows, (std::multiset<std::string>{
                      "state", "steps", "operators", "operators of thread 5", "communication",
                      "communication in the background", "communication in the background"}));
}

TEST(Trace, TimesAreMicrosecondsFromTheFirstStepOn) {
  std::vector<RankProfile> ranks = {busy_rank(0), busy_rank(1)};
  for (RankProfile& rank : ranks) shift(rank, 5'000'000'000);
  const json trace = trace_of(ranks);
  const json step = slice_named(trace, 0, "step 6");
  EXPECT_EQ(step.at("ts"), 0);
  EXPECT_EQ(step.at("dur"), 1000);
  const json product = slice_named(trace, 1, "aten::mm");
  EXPECT_EQ(product.at("ts"), 200);
  EXPECT_EQ(product.at("dur"), 100.5);
  EXPECT_EQ(product.at("args").at("flops"), 64);
}

TEST(Trace, ACallSaysWhatItWas) {
  RankProfile late = busy_rank(1);
  late.calls[0].time.begin_ns = 450'000;
  const json call = slice_named(trace_of({busy_rank(0), late}), 0, "all_reduce");
  EXPECT_EQ(call.at("cat"), "communication");
  const json expected = {{"group", "data"},   {"sequence", 1},   {"bytes", 4096},
                         {"queued_us", 10.0}, {"wait_us", 50.0}, {"background", true}};
  EXPECT_EQ(call.at("args"), expected);
}

TEST(Trace, SlicesOfARowNestOrFollowOneAnother) {
  const json trace = trace_of({busy_rank(0)});
  std::map<int, std::vector<std::pair<double, double>>> rows;
  for (const json& event : slices(trace, 0)) {
    const double begin = event.at("ts");
    rows[event.at("tid")].emplace_back(begin, begin + event.at("dur").get<double>());
  }
  for (const auto& [row, spans] : rows) {
    for (const auto& a : spans) {
      for (const auto& b : spans) {
        const bool crosses = a.first < b.first && b.first < a.second && a.second < b.second;
        EXPECT_FALSE(crosses) << "row " << row;
      }
    }
  }
}

TEST(Trace, TheStateRowIsTheWholeStep) {
  const json trace = trace_of({busy_rank(0)});
  std::map<std::string, double> totals;
  double sum = 0;
  for (const json& event : slices(trace, 0)) {
    if (event.at("tid") != 0) continue;
    totals[event.at("cat")] += event.at("dur").get<double>();
    sum += event.at("dur").get<double>();
  }
  EXPECT_DOUBLE_EQ(sum, 1000);
  EXPECT_DOUBLE_EQ(totals.at("data"), 100);
  EXPECT_DOUBLE_EQ(totals.at("communication"), 60);
  EXPECT_DOUBLE_EQ(totals.at("computing"), 840);
}

TEST(Trace, SaysWhatAPipelineDid) {
  const std::vector<RankProfile> ranks = {busy_rank(0), busy_rank(1)};
  const auto states = states_of(ranks);
  ProfileReport report = make_report(ranks, states);
  PipelineSummary& pipeline = report.pipeline.emplace();
  pipeline.schedule = parallel::make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 4});
  pipeline.times.stages = {{1, 2, 0}, {3, 4, 0}};
  pipeline.times.stage_shares = {0.25, 0.5};
  pipeline.times.waiting = {5, 6};
  pipeline.times.bytes_sent = {7, 8};
  pipeline.times.bubble = 0.75;
  pipeline.moving = {9, 10};
  const json found =
      json::parse(chrome_trace(ranks, states, report)).at("otherData").at("pipeline");
  EXPECT_EQ(found.at("schedule"), "1f1b");
  EXPECT_EQ(found.at("bubble"), 0.75);
  EXPECT_EQ(found.at("stages").at(1).at("forward_seconds"), 3);
  EXPECT_EQ(found.at("stages").at(1).at("computing_share"), 0.5);
  EXPECT_EQ(found.at("ranks").at(1).at("waiting_seconds"), 6);
  EXPECT_EQ(found.at("ranks").at(1).at("moving_seconds"), 10);
}

TEST(Trace, APipelinesRowHasWhatTheRankComputed) {
  RankProfile rank = busy_rank(0);
  parallel::PipelineProfile& run = rank.pipeline_runs.emplace_back();
  run.begin += std::chrono::microseconds(150);
  run.actions = {{{parallel::ActionKind::kForward, 1, 3}, 0, 0.0002},
                 {{parallel::ActionKind::kBackward, 1, 3}, 0.0003, 0.00055}};
  const json trace = trace_of({rank, busy_rank(1)});
  const json forward = slice_named(trace, 0, "forward of microbatch 3 on stage 1");
  EXPECT_EQ(forward.at("ts"), 150);
  EXPECT_EQ(forward.at("dur"), 200);
  EXPECT_EQ(forward.at("args"), (json{{"stage", 1}, {"microbatch", 3}}));
  const json backward = slice_named(trace, 0, "backward of microbatch 3 on stage 1");
  EXPECT_EQ(backward.at("ts"), 450);
  EXPECT_EQ(backward.at("dur"), 250);
  const auto names = row_names(trace);
  EXPECT_EQ(names.at({0, backward.at("tid")}), "pipeline");
  EXPECT_FALSE(names.contains({1, backward.at("tid")}));
}

TEST(Trace, CarriesTheReportAndAnyName) {
  RankProfile rank = busy_rank(0);
  rank.operators.push_back({"quote \" and \xff", {1, 2}});
  const json trace = trace_of({rank});
  EXPECT_EQ(trace.at("otherData").at("first_step"), 6);
  EXPECT_EQ(trace.at("otherData").at("ranks").size(), 1u);
  EXPECT_TRUE(trace.at("otherData").at("bound").is_string());
}

}  // namespace
}  // namespace trireme::train
