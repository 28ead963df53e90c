#include "trireme/parallel/pipeline/schedule/zero_bubble.h"

#include <algorithm>
#include <set>

#include "trireme/parallel/pipeline/schedule/weight_parts.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr double kRoundoff = 1e-9;
constexpr double kMany = 1e6;

// How many forwards fit on each rank before the first gradient arrives. A fraction of at least 1 -
// `extra` counts as a whole one.
std::vector<int> forwards_ahead(const ScheduleOptions& options, double extra) {
  const int p = options.num_ranks;
  const double communication = options.costs.communication;
  double arrival = (p - 1) * communication;
  for (int stage = 0; stage < p; ++stage) arrival += options.costs.of(stage).forward;
  std::vector<int> ahead(static_cast<size_t>(p));
  for (int rank = p - 1; rank >= 0; --rank) {
    double start = rank * communication;
    for (int stage = 0; stage < rank; ++stage) start += options.costs.of(stage).forward;
    const double forward = options.costs.of(rank).forward;
    const double fit = forward > 0 ? (arrival - start) / forward : p - rank;
    const int least = rank + 1 < p ? ahead[rank + 1] + 1 : 1;
    ahead[rank] = std::max(least, static_cast<int>(std::min(fit + extra + kRoundoff, kMany)));
    arrival += options.costs.of(rank).backward_input + communication;
  }
  return ahead;
}

Schedule split_1f1b(const ScheduleOptions& options, const std::vector<int>& ahead) {
  Schedule order{.name = "zero-bubble",
                 .num_microbatches = options.num_microbatches,
                 .rank_of_stage = round_robin(options.num_ranks, 1),
                 .edges = chain_edges(options.num_ranks),
                 .actions = std::vector<std::vector<Action>>(ahead.size())};
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    int forwards = 0;
    for (int microbatch = 0; microbatch < options.num_microbatches; ++microbatch) {
      for (; forwards < std::min(options.num_microbatches, ahead[rank] + microbatch); ++forwards)
        order.actions[rank].push_back({ActionKind::kForward, rank, forwards});
      order.actions[rank].push_back({ActionKind::kBackwardInput, rank, microbatch});
    }
  }
  return order;
}

// One rank's forwards and input parts along the V: chunk 0 on the way down, chunk 1 on the way up.
std::vector<Action> v_order(int rank, int num_ranks, int num_microbatches) {
  // The pattern needs enough microbatches to fill the V. Those that do not exist are skipped.
  const int padded = std::max(num_microbatches, 2 * num_ranks - 1);
  const int stages[] = {rank, 2 * num_ranks - 1 - rank};
  int forwards[2] = {};
  int backwards[2] = {};
  std::vector<Action> actions;
  const auto add = [&](ActionKind kind, int chunk) {
    int& next = kind == ActionKind::kForward ? forwards[chunk] : backwards[chunk];
    if (next < num_microbatches) actions.push_back({kind, stages[chunk], next});
    ++next;
  };
  constexpr ActionKind kForward = ActionKind::kForward;
  constexpr ActionKind kInput = ActionKind::kBackwardInput;
  for (int i = 0; i < 2 * (num_ranks - rank) - 1; ++i) add(kForward, 0);
  for (int i = 0; i < rank; ++i) add(kForward, 1), add(kForward, 0);
  for (int i = 0; i < num_ranks - rank; ++i) add(kForward, 1), add(kInput, 1);
  while (forwards[1] < padded) {
    if (forwards[0] < padded) add(kForward, 0);
    add(kInput, 0), add(kForward, 1), add(kInput, 1);
  }
  for (int i = 0; i < rank; ++i) add(kInput, 0), add(kInput, 1);
  for (int i = 0; i < num_ranks - rank; ++i) add(kInput, 0);
  return actions;
}

}  // namespace

Schedule zero_bubble(const ScheduleOptions& options) {
  const int p = options.num_ranks;
  const double limit = std::min<double>(options.memory_limit, options.num_microbatches);
  std::set<std::vector<int>> tried;
  std::vector<Schedule> orders;
  for (int most = p; most <= std::max<double>(p, limit); ++most) {
    for (const double extra : {0.0, 0.5, 1.0}) {
      std::vector<int> ahead = forwards_ahead(options, extra);
      for (int rank = 0; rank < p; ++rank) ahead[rank] = std::min(ahead[rank], most - rank);
      if (tried.insert(ahead).second) orders.push_back(split_1f1b(options, ahead));
    }
  }
  return fill_weight_parts(orders, options);
}

Schedule zero_bubble_v(const ScheduleOptions& options) {
  const int p = options.num_ranks;
  Schedule order{.name = "zero-bubble-v",
                 .num_microbatches = options.num_microbatches,
                 .rank_of_stage = {},
                 .edges = chain_edges(2 * p)};
  for (int stage = 0; stage < 2 * p; ++stage)
    order.rank_of_stage.push_back(std::min(stage, 2 * p - 1 - stage));
  for (int rank = 0; rank < p; ++rank)
    order.actions.push_back(v_order(rank, p, options.num_microbatches));
  return fill_weight_parts({order}, options);
}

}  // namespace trireme::parallel::inline internal
