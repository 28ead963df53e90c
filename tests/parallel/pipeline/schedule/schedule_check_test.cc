#include "trireme/parallel/pipeline/schedule/schedule_check.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

constexpr uint64_t kSeed = 20261121;

// The message; empty when it was accepted.
std::string refusal_of(const Schedule& schedule) {
  try {
    check_schedule(schedule);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

void expect_refused(const Schedule& schedule, const std::vector<std::string>& words) {
  const std::string what = refusal_of(schedule);
  ASSERT_FALSE(what.empty()) << "accepted; expected a refusal with " << words.front();
  for (const std::string& word : words)
    EXPECT_NE(what.find(word), std::string::npos) << word << " is not in: " << what;
}

struct Case {
  std::string name;
  ScheduleOptions options;
};

Case random_case(std::mt19937_64& random) {
  const auto number = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const auto time = [&] { return std::uniform_real_distribution<double>(0.1, 3)(random); };
  Case drawn{schedule_names()[number(0, static_cast<int>(schedule_names().size()) - 1)], {}};
  ScheduleOptions& options = drawn.options;
  options.num_ranks = number(1, 8);
  options.num_microbatches = number(1, 24);
  const bool any_chunks = drawn.name == "interleaved" || drawn.name == "breadth-first";
  if (any_chunks) options.num_chunks = number(1, 4);
  const int chunks = any_chunks ? options.num_chunks : drawn.name == "zero-bubble-v" ? 2 : 1;
  options.costs.stages.resize(number(0, 1) == 0 ? 1 : options.num_ranks * chunks);
  for (StageCosts& costs : options.costs.stages) costs = {time(), time(), time()};
  options.costs.communication = number(0, 1) == 0 ? 0 : time();
  options.costs.kept_for_weight = number(0, 2) / 2.0;
  options.memory_limit = number(0, 1) == 0 ? 0 : options.num_ranks + number(0, 8);
  return drawn;
}

std::string describe(const Case& drawn) {
  return concat(drawn.name, ", ", drawn.options.num_ranks, " ranks, ", drawn.options.num_chunks,
                " chunks, ", drawn.options.num_microbatches, " microbatches, limit ",
                drawn.options.memory_limit, "; seed ", kSeed);
}

TEST(ScheduleCheck, EveryBuildersScheduleIsRight) {
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 600; ++i) {
    const Case drawn = random_case(random);
    const Schedule schedule = make_schedule(drawn.name, drawn.options);
    EXPECT_EQ(refusal_of(schedule), "") << describe(drawn);
    // Random skip connections as well.
    std::vector<StageEdge> edges = schedule.edges;
    for (int from = 0; from + 2 < schedule.num_stages(); ++from) {
      if (random() % 3 == 0)
        edges.push_back(
            {from, static_cast<int>(from + 2 + random() % (schedule.num_stages() - from - 2))});
    }
    Schedule computations = schedule;
    for (auto& actions : computations.actions)
      std::erase_if(actions, [](const Action& action) { return !is_compute(action.kind); });
    EXPECT_EQ(refusal_of(with_transfers(computations, edges)), "") << describe(drawn);
  }
}

// Every action of a small schedule: lost, doubled, on another rank or of another microbatch.
TEST(ScheduleCheck, EveryBrokenActionIsRefused) {
  for (const std::string& name : schedule_names()) {
    const Schedule right = make_schedule(name, {.num_ranks = 3, .num_microbatches = 4});
    ASSERT_EQ(refusal_of(right), "") << name;
    for (int rank = 0; rank < right.num_ranks(); ++rank) {
      for (size_t i = 0; i < right.actions[rank].size(); ++i) {
        const Action action = right.actions[rank][i];
        const auto broken = [&](auto&& change) {
          Schedule schedule = right;
          change(schedule.actions, schedule.actions[rank]);
          EXPECT_NE(refusal_of(schedule), "") << name << ": " << to_string(action);
        };
        const auto at = static_cast<int64_t>(i);
        broken([&](auto&, auto& own) { own.erase(own.begin() + at); });
        broken([&](auto&, auto& own) { own.insert(own.begin() + at, action); });
        broken([&](auto&, auto& own) { own[i].microbatch = (action.microbatch + 1) % 4; });
        broken([&](auto&, auto& own) { own[i].microbatch = 4; });
        broken([&](auto&, auto& own) { own[i].stage = right.num_stages(); });
        broken([&](auto& all, auto& own) {
          all[(rank + 1) % 3].push_back(action);
          own.erase(own.begin() + at);
        });
      }
    }
  }
}

// Whether `a` must come before `b` on their rank.
bool is_needed(const Action& a, const Action& b) {
  return a.stage == b.stage && a.microbatch == b.microbatch;
}

TEST(ScheduleCheck, NeighboursThatNeedEachOtherMayNotBeSwapped) {
  for (const std::string& name : schedule_names()) {
    const Schedule right = make_schedule(name, {.num_ranks = 3, .num_microbatches = 4});
    int swapped = 0;
    for (int rank = 0; rank < right.num_ranks(); ++rank) {
      for (size_t i = 0; i + 1 < right.actions[rank].size(); ++i) {
        const Action& first = right.actions[rank][i];
        const Action& second = right.actions[rank][i + 1];
        if (!is_needed(first, second) || (!is_compute(first.kind) && !is_compute(second.kind)) ||
            (first.kind == ActionKind::kSendGradient && second.kind == ActionKind::kBackwardWeight))
          continue;
        Schedule schedule = right;
        std::swap(schedule.actions[rank][i], schedule.actions[rank][i + 1]);
        EXPECT_NE(refusal_of(schedule), "")
            << name << ": " << to_string(first) << " and " << to_string(second);
        ++swapped;
      }
    }
    EXPECT_GT(swapped, 10) << name;
  }
}

TEST(ScheduleCheck, SaysRankActionAndReason) {
  const Schedule right = make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 3});
  Schedule schedule = right;
  schedule.actions[0].erase(schedule.actions[0].begin());
  expect_refused(schedule, {"1f1b", "rank 0", "forward of microbatch 0 on stage 0", "missing"});

  schedule = right;
  schedule.actions[1].push_back({ActionKind::kForward, 1, 0});
  expect_refused(schedule, {"rank 1", "forward of microbatch 0 on stage 1", "twice"});

  schedule = right;
  schedule.actions[1].push_back({ActionKind::kForward, 0, 0});
  expect_refused(schedule, {"rank 1", "the stage is on rank 0"});

  schedule = right;
  schedule.actions[0].push_back({ActionKind::kSendActivation, 0, 0, 0});
  expect_refused(schedule, {"rank 0", "no such edge"});

  schedule = make_schedule("gpipe", {.num_ranks = 1, .num_microbatches = 2});
  std::swap(schedule.actions[0][2], schedule.actions[0][3]);
  expect_refused(schedule, {"backward of microbatch 0", "after that of microbatch 1", "ascending"});

  schedule = right;
  schedule.rank_of_stage[1] = 2;
  expect_refused(schedule, {"on rank 2", "one of 2"});
}

// Both send before either receives: fine with buffers, not when a send waits for its recv.
TEST(ScheduleCheck, SendsThatWaitForEachOtherAreADeadlock) {
  Schedule schedule = make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 2});
  auto& actions = schedule.actions[1];
  const auto recv = std::ranges::find(actions, Action{ActionKind::kRecvActivation, 1, 1, 0});
  const auto send = std::ranges::find(actions, Action{ActionKind::kSendGradient, 1, 0, 0});
  ASSERT_NE(recv, actions.end());
  ASSERT_NE(send, actions.end());
  std::iter_swap(recv, send);  // now the backward of microbatch 0 comes after its gradient's send
  expect_refused(schedule, {"deadlock"});
}

TEST(ScheduleCheck, CountsWhatEachRankHolds) {
  const Schedule schedule{.name = "hand-made",
                          .num_microbatches = 2,
                          .rank_of_stage = {0},
                          .edges = {},
                          .actions = {{{ActionKind::kForward, 0, 0},
                                       {ActionKind::kBackwardInput, 0, 0},
                                       {ActionKind::kForward, 0, 1},
                                       {ActionKind::kBackwardInput, 0, 1},
                                       {ActionKind::kBackwardWeight, 0, 0},
                                       {ActionKind::kBackwardWeight, 0, 1}}}};
  check_schedule(schedule);
  EXPECT_EQ(peak_activations(schedule).front(),
            (PeakActivations{.until_backward = 1, .until_weight = 2}));
}

}  // namespace
}  // namespace trireme::parallel
