#include "trireme/launch/watchdog/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/observed.h"
#include "trireme/base/error.h"
#include "trireme/comm/recorder/diagnosis.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Observation example() {
  Observation observation{.rank = 2,
                          .host = "b",
                          .process_id = 4711,
                          .process_state = 'D',
                          .has_ring = true,
                          .step = 81,
                          .is_in_step = true,
                          .num_calls = 12,
                          .last_call = "all_reduce #5 of group data",
                          .is_in_call = true,
                          .idle = 7s,
                          .cores_used = 0.5,
                          .stage = 1,
                          .windows = {{21, 5ms, 1ms}, {41, 6ms, 2ms}}};
  auto ranks = comm::run_of(4);
  ranks[2].add_group("data", {0, 2, 3});
  ranks[2].call("all_reduce", 60, -1, 1);
  ranks[2].message("recv", 3, 7, 61);
  observation.evidence = ranks[2].observed();
  return observation;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_observations(text, "the heartbeat of b");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Observation, TravelsAsJson) {
  const Observation sent = example();
  const std::string text = to_json({sent, {.rank = 0}});
  const std::vector<Observation> all = parse_observations(text, "text");
  ASSERT_EQ(all.size(), 2u);
  const Observation& read = all[0];
  EXPECT_EQ(to_json(all), text);
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.host, "b");
  EXPECT_EQ(read.process_state, 'D');
  EXPECT_EQ(read.step, 81);
  EXPECT_TRUE(read.is_in_step);
  EXPECT_TRUE(read.is_in_call);
  EXPECT_EQ(read.last_call, sent.last_call);
  EXPECT_EQ(read.idle, 7s);
  EXPECT_EQ(read.windows, sent.windows);
  EXPECT_FALSE(all[1].evidence);
  EXPECT_EQ(all[1].process_state, '?');
}

TEST(Observation, DiagnosisOfWhatHasTravelledIsTheSame) {
  auto ranks = comm::run_of(4);
  ranks[0].call("all_reduce", 60);
  ranks[2].call("all_reduce", 61);
  ranks[3].call("all_reduce", 62);
  std::vector<Observation> sent;
  for (const auto& rank : observed(ranks)) {
    sent.push_back({.rank = rank.ring.rank, .host = "host", .process_id = rank.ring.process_id});
    sent.back().evidence = rank;
  }
  std::vector<comm::ObservedRank> read;
  for (const Observation& observation : parse_observations(to_json(sent), "text")) {
    read.push_back(*observation.evidence);
  }
  const auto before = comm::diagnose(observed(ranks)), after = comm::diagnose(read);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].text, after[i].text);
}

TEST(Observation, OfAHealthyRankIsSmall) {
  Observation observation = example();
  observation.evidence.reset();
  EXPECT_LT(to_json({observation}).size(), 400u);
}

TEST(Observation, GroupsOfAThousandRanksAreSmall) {
  Observation observation = example();
  auto& groups = observation.evidence->ring.groups;
  groups.clear();
  observation.evidence->ring.records.clear();
  for (int group = 0; group < 20; ++group) {
    groups.push_back({"data", {}});
    for (int rank = group; rank < 8000; rank += 8) groups.back().world_ranks.push_back(rank);
  }
  const std::string text = to_json({observation});
  EXPECT_LT(text.size(), 4000u);
  EXPECT_EQ(to_json(parse_observations(text, "text")), text);
}

TEST(Observation, TextOfARingIsMadePrintable) {
  Observation observation = example();
  observation.evidence->ring.groups[0].name = "a\x1b[2J\xff";
  observation.evidence->ring.job = std::string(1000, 'j');
  const auto read = parse_observations(to_json({observation}), "text");
  EXPECT_EQ(read[0].evidence->ring.groups[0].name.substr(0, 5), "a?[2J");
}

TEST(Observation, HostileTextIsRefusedInOneLine) {
  const std::string text = to_json({example()});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return refusal_of(changed.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("\"rank\":2", "\"rank\":-1"), HasSubstr("the heartbeat of b: "));
  EXPECT_THAT(with("\"state\":\"D\"", "\"state\":\"DD\""), HasSubstr("state"));
  EXPECT_THAT(with("[0,1,4]", "[0,1,99999999]"), HasSubstr("whole number"));
  EXPECT_THAT(with("[0,1,4]", "[0,-1,4]"), HasSubstr("ranks from 0"));
  EXPECT_THAT(with("[0,1,4]", "[0,0]"), HasSubstr("[first, distance, count]"));
  EXPECT_THAT(with("\"group\":1", "\"group\":2"), HasSubstr("group"));
  EXPECT_THAT(with("\"kinds\":[6,0,", "\"kinds\":[6,99,"), HasSubstr("kinds"));
  EXPECT_THAT(with("\"world_size\":4", "\"world_size\":2"), HasSubstr("world_size"));
  EXPECT_THAT(with("\"windows\":[[", "\"windows\":[[1,1,1],[1,1,1],[1,1,1],[1,1,1],["),
              HasSubstr("at most 5"));
  EXPECT_NE(refusal_of("{"), "");
  EXPECT_NE(refusal_of("{}"), "");
  EXPECT_NE(refusal_of("[1]"), "");
  // Many groups that are small in JSON and large in memory.
  const std::string group = R"({"name":"g","ranks":[[0,1,262144]],"collectives":0,"messages":0},)";
  std::string groups;
  for (int i = 0; i < 10; ++i) groups += group;
  std::string huge = text;
  const std::string key = "\"groups\":[";
  huge.insert(huge.find(key) + key.size(), groups);
  EXPECT_THAT(refusal_of(huge), HasSubstr("at most a million ranks"));
}

}  // namespace
}  // namespace trireme::launch
