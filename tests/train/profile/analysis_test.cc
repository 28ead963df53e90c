#include "trireme/train/profile/analysis.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/train/profile/synthetic.h"

namespace trireme::train {
namespace {

using Spans = std::vector<Span>;

CallSpan call(uint64_t sequence, Span time, bool is_background) {
  return {"all_reduce", 0, sequence, 8, time.begin_ns, time, is_background};
}

RankStates states_of_one(const RankProfile& rank) { return states_of({rank}).front(); }

// Computing, data, exposed and idle make up the steps, without overlap.
void expect_partition(const RankStates& states) {
  EXPECT_EQ(states.computing | states.data | states.exposed | states.idle, states.steps);
  EXPECT_EQ(states.computing.total_ns() + states.data.total_ns() + states.exposed.total_ns() +
                states.idle.total_ns(),
            states.steps.total_ns());
  EXPECT_EQ(states.late - states.exposed, TimeSet());
}

std::map<std::string, int64_t> own_times_by_name(const RankProfile& rank) {
  std::map<std::string, int64_t> times;
  for (const OwnTime& time : own_times(rank)) times[time.name] += time.own_ns;
  return times;
}

TEST(States, AStepWithoutCallsComputesAllButItsDataPhase) {
  const RankStates states = states_of_one(one_step(0, 1000));
  EXPECT_EQ(states.data.spans(), (Spans{{0, 100}}));
  EXPECT_EQ(states.computing.spans(), (Spans{{100, 1000}}));
  EXPECT_EQ(states.communication, TimeSet());
  expect_partition(states);
}

TEST(States, ABackgroundCallIsHiddenButForTheWait) {
  RankProfile rank = one_step(0, 1000);
  rank.calls = {call(1, {400, 800}, true)};
  rank.operators = {{"aten::mm", {150, 300}}, {"trireme::wait", {700, 810}}};
  const RankStates states = states_of_one(rank);
  EXPECT_EQ(states.communication.spans(), (Spans{{400, 810}}));  // awake a little later
  EXPECT_EQ(states.computing.spans(), (Spans{{100, 700}, {810, 1000}}));
  EXPECT_EQ(states.exposed.spans(), (Spans{{700, 810}}));
  EXPECT_EQ(states.idle, TimeSet());
  expect_partition(states);
}

TEST(States, AForegroundCallIsExposed) {
  RankProfile rank = one_step(0, 1000);
  rank.calls = {call(1, {50, 150}, false), call(2, {400, 800}, true), call(3, {500, 600}, false)};
  const RankStates states = states_of_one(rank);
  EXPECT_EQ(states.exposed.spans(), (Spans{{50, 150}, {500, 600}}));
  EXPECT_EQ(states.data.spans(), (Spans{{0, 50}}));
  EXPECT_EQ((states.communication & states.computing).total_ns(), 300);
  expect_partition(states);
}

TEST(States, LateIsTheTimeBeforeTheLastRankCame) {
  RankProfile first = one_step(0, 1000);
  RankProfile second = one_step(1, 1000);
  first.calls = {call(1, {200, 700}, false), call(2, {800, 900}, false)};
  second.calls = {call(1, {600, 690}, false), call(2, {790, 900}, false)};
  // Another group of that name, and a message, wait for nobody.
  first.groups.push_back({"data", {0, 2}});
  first.calls.push_back({"all_reduce", 1, 1, 8, 710, {710, 720}, false});
  first.calls.push_back({"send", 0, 3, 8, 730, {730, 740}, false, true});
  second.calls.push_back({"recv", 0, 3, 8, 739, {739, 745}, false, true});
  const auto states = states_of({first, second});
  EXPECT_EQ(states[0].late.spans(), (Spans{{200, 600}}));
  EXPECT_EQ(states[1].late.spans(), (Spans{{790, 800}}));
  expect_partition(states[0]);
  expect_partition(states[1]);
}

TEST(States, TimeBetweenStepsDoesNotCount) {
  RankProfile rank = one_step(0, 1000);
  rank.steps.push_back({7, {2000, 3000}});
  rank.phases.push_back({Phase::kOptimizer, {2000, 3000}});
  rank.calls = {call(1, {900, 2100}, true)};
  const RankStates states = states_of_one(rank);
  EXPECT_EQ(states.steps.total_ns(), 2000);
  EXPECT_EQ(states.communication.total_ns(), 200);
  expect_partition(states);
}

TEST(States, WithAGpuItsKernelsAreTheComputing) {
  RankProfile rank = one_step(0, 1000);
  rank.operators = {{"aten::mm", {100, 120}},
                    {"sm90_gemm", {300, 500}, 7, 0},
                    {"ncclDevKernel_AllReduce", {400, 700}, 9, 0}};
  const RankStates states = states_of_one(rank);
  EXPECT_EQ(states.computing.spans(), (Spans{{300, 500}}));
  EXPECT_EQ(states.communication.spans(), (Spans{{400, 700}}));
  EXPECT_EQ(states.exposed.spans(), (Spans{{500, 700}}));
  EXPECT_EQ(states.idle.spans(), (Spans{{100, 300}, {700, 1000}}));
  expect_partition(states);
  EXPECT_EQ(own_times_by_name(rank), (std::map<std::string, int64_t>{{"sm90_gemm", 200}}));
}

TEST(States, WithoutRecordedCallsWaitsAndTheExchangeAreCommunication) {
  RankProfile rank = one_step(0, 1000);
  rank.phases.back().time.end_ns = 900;
  rank.phases.push_back({Phase::kExchange, {900, 1000}});
  rank.operators = {{"trireme::wait", {300, 400}}};
  const RankStates states = states_of({rank, one_step(1, 1000)}).front();
  EXPECT_EQ(states.communication.spans(), (Spans{{300, 400}, {900, 1000}}));
  EXPECT_EQ(states.exposed, states.communication);
  expect_partition(states);
  EXPECT_EQ(states_of_one(rank).idle.spans(), (Spans{{900, 1000}}));  // one rank has no peers
}

TEST(States, NothingRecordedIsNothing) {
  const RankStates states = states_of_one({});
  EXPECT_EQ(states.steps, TimeSet());
  EXPECT_EQ(states.idle, TimeSet());
  EXPECT_TRUE(states_of({}).empty());
  EXPECT_TRUE(own_times({}).empty());
}

TEST(OwnTimes, AreWithoutWhatLiesWithin) {
  RankProfile rank = one_step(0, 1000);
  rank.operators = {{"aten::linear", {200, 400}},  {"aten::addmm", {220, 380}},
                    {"aten::addmm", {500, 600}},   {"aten::data", {10, 20}},
                    {"aten::later", {1500, 1600}}, {"aten::elsewhere", {500, 600}, 3}};
  EXPECT_EQ(
      own_times_by_name(rank),
      (std::map<std::string, int64_t>{
          {"aten::linear", 40}, {"aten::addmm", 260}, {"forward_backward: other code", 600}}));
}

TEST(OwnTimes, AreWithoutCallsAndWaitsInAnOperator) {
  RankProfile rank = one_step(0, 1000);
  rank.operators = {{"AccumulateGrad", {200, 400}}, {"trireme::wait", {250, 300}}};
  rank.calls = {call(1, {320, 340}, false), call(2, {200, 1000}, true)};
  const auto times = own_times_by_name(rank);
  EXPECT_EQ(times.at("AccumulateGrad"), 130);
  EXPECT_EQ(times.at("forward_backward: other code"), 700);
  EXPECT_EQ(times.count("trireme::wait"), 0u);
  // Together all of the computing.
  EXPECT_EQ(states_of_one(rank).computing.total_ns(), 830);
}

TEST(OwnTimes, ClocksApartCostOnlyTheOverlap) {
  RankProfile rank = one_step(0, 1000);
  rank.operators = {{"a", {200, 400}}, {"b", {390, 500}}, {"c", {95, 110}}};
  const auto times = own_times_by_name(rank);
  EXPECT_EQ(times.at("a"), 190);
  EXPECT_EQ(times.at("b"), 110);
  EXPECT_EQ(times.count("c"), 0u);  // began with the data
}

}  // namespace
}  // namespace trireme::train
