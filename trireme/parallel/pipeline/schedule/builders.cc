#include "trireme/parallel/pipeline/schedule/builders.h"

#include <algorithm>

namespace trireme::parallel::inline internal {
namespace {

Schedule empty_schedule(const char* name, int num_ranks, int num_chunks, int num_microbatches) {
  return {.name = name,
          .num_microbatches = num_microbatches,
          .rank_of_stage = round_robin(num_ranks, num_chunks),
          .edges = chain_edges(num_ranks * num_chunks),
          .actions = std::vector<std::vector<Action>>(static_cast<size_t>(num_ranks))};
}

struct Step {
  int chunk = 0;
  int microbatch = 0;
};

// The order in which a rank visits its chunks, one group of microbatches after another.
std::vector<Step> steps_of(int num_chunks, int num_microbatches, int num_groups, bool backward) {
  std::vector<Step> steps;
  int begin = 0;
  for (int group = 0; group < num_groups; ++group) {
    // As even as possible, longer groups first.
    const int size = num_microbatches / num_groups + (group < num_microbatches % num_groups);
    for (int c = 0; c < num_chunks; ++c) {
      const int chunk = backward ? num_chunks - 1 - c : c;
      for (int i = begin; i < begin + size; ++i) steps.push_back({chunk, i});
    }
    begin += size;
  }
  return steps;
}

// `num_ahead` forwards, then forwards and backwards in turn while both last.
std::vector<Action> one_and_one(const std::vector<Step>& forwards,
                                const std::vector<Step>& backwards, int num_ahead, int rank,
                                int num_ranks) {
  std::vector<Action> actions;
  const auto add = [&](ActionKind kind, const Step& step) {
    actions.push_back({kind, step.chunk * num_ranks + rank, step.microbatch});
  };
  size_t next = 0;
  for (; next < std::min(forwards.size(), static_cast<size_t>(num_ahead)); ++next)
    add(ActionKind::kForward, forwards[next]);
  for (const Step& step : backwards) {
    if (next < forwards.size()) add(ActionKind::kForward, forwards[next++]);
    add(ActionKind::kBackward, step);
  }
  return actions;
}

}  // namespace

Schedule interleaved(int num_ranks, int num_chunks, int num_microbatches) {
  Schedule schedule = empty_schedule("interleaved", num_ranks, num_chunks, num_microbatches);
  const int num_groups = std::max(1, num_microbatches / num_ranks);
  const int largest_group = (num_microbatches + num_groups - 1) / num_groups;
  const auto forwards = steps_of(num_chunks, num_microbatches, num_groups, false);
  const auto backwards = steps_of(num_chunks, num_microbatches, num_groups, true);
  // With one chunk, only the forwards that fill the ranks behind this one. With several, as many
  // again, until the first backward has come back.
  const int per_rank = num_chunks == 1 ? 1 : 2;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int num_ahead = per_rank * (num_ranks - 1 - rank) + (num_chunks - 1) * largest_group;
    schedule.actions[rank] = one_and_one(forwards, backwards, num_ahead, rank, num_ranks);
  }
  return schedule;
}

Schedule one_forward_one_backward(int num_ranks, int num_microbatches) {
  Schedule schedule = interleaved(num_ranks, 1, num_microbatches);
  schedule.name = "1f1b";
  return schedule;
}

Schedule breadth_first(int num_ranks, int num_chunks, int num_microbatches) {
  Schedule schedule = empty_schedule("breadth-first", num_ranks, num_chunks, num_microbatches);
  const auto forwards = steps_of(num_chunks, num_microbatches, 1, false);
  const auto backwards = steps_of(num_chunks, num_microbatches, 1, true);
  for (int rank = 0; rank < num_ranks; ++rank) {
    schedule.actions[rank] =
        one_and_one(forwards, backwards, static_cast<int>(forwards.size()), rank, num_ranks);
  }
  return schedule;
}

Schedule gpipe(int num_ranks, int num_microbatches) {
  Schedule schedule = breadth_first(num_ranks, 1, num_microbatches);
  schedule.name = "gpipe";
  return schedule;
}

}  // namespace trireme::parallel::inline internal
