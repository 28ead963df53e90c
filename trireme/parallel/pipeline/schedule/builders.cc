#include "trireme/parallel/pipeline/schedule/builders.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
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
    // Splits as evenly as possible, longer groups first.
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
  // A group is filled once through all chunks of a rank, so groups shorter than the pipeline would
  // leave gaps.
  const int num_groups = std::max(1, num_microbatches / num_ranks);
  const int largest_group = (num_microbatches + num_groups - 1) / num_groups;
  const auto forwards = steps_of(num_chunks, num_microbatches, num_groups, false);
  const auto backwards = steps_of(num_chunks, num_microbatches, num_groups, true);
  // With one chunk, only the forwards that fill the ranks behind this one. With several, as many
  // again, until the first backward has come back.
  const int per_rank = num_chunks == 1 ? 1 : 2;
  for (int rank = 0; rank < num_ranks; ++rank) {
    // Forwards until the first gradient can be there.
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

namespace {

// Sums that should be equal differ by roundoff.
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
    // More ahead than the rank after it, or that one would wait for its first input.
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
  // With more memory more forwards may run ahead; each number is a candidate.
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

// Weight parts can be done any time after their input part, so they fill gaps. A greedy choice with
// one threshold is not always best: a weight part that is a little too long for a gap may cost less
// there than at the end. So several thresholds (`slack`) and several orders are tried, each is
// timed as the simulator would, and the cheapest stays. Ranks are advanced in turn until each waits
// for another, because when an action is ready depends on the others' choices.

namespace {

using Actions = std::vector<Action>;

// Puts weight parts between the forwards and input parts of one rank.
class WeightFiller {
 public:
  // `limit`: activations held, from forward to weight part. `slack`: by which share of a weight
  // part's time the next action may be delayed.
  WeightFiller(const Actions& order, const PipelineCosts& costs, double limit, double slack)
      : order_(order), costs_(costs), limit_(limit), slack_(slack) {}

  // Continues until the next action waits for another rank. False when nothing was added.
  bool advance(Completion& completion) {
    const size_t before = filled.size();
    for (; next_ < order_.size(); ++next_) {
      const Action& action = order_[next_];
      const double ready = completion.ready_time(action);
      if (ready < 0) break;
      // First those that fit before the action is ready; then those whose memory a forward needs.
      while (!pending_.empty() && (fits(ready) || must_make_room(action))) add_weight(completion);
      if (must_make_room(action)) {
        exceeded = true;
        return false;
      }
      time_ = std::max(time_, ready);
      add(action, completion);
    }
    while (next_ == order_.size() && !pending_.empty()) add_weight(completion);
    return filled.size() > before;
  }
  bool is_over() const { return next_ == order_.size() && pending_.empty(); }

  Actions filled;
  bool exceeded = false;  // the order itself holds more than the limit

 private:
  bool fits(double ready) const {
    const double duration = duration_of(pending_.front(), costs_);
    // A part of the weight's time may delay what follows.
    return time_ + duration * (1 - slack_) <= ready * (1 + kRoundoff);
  }
  bool must_make_room(const Action& action) const {
    return action.kind == ActionKind::kForward && held_ + 1 > limit_ + kRoundoff;
  }
  void add(const Action& action, Completion& completion) {
    time_ += duration_of(action, costs_);
    completion.finish(action, time_);
    filled.push_back(action);
    held_ += activation_change(action, costs_.kept_for_weight);
    if (action.kind == ActionKind::kBackwardInput)
      pending_.push_back({ActionKind::kBackwardWeight, action.stage, action.microbatch});
  }
  void add_weight(Completion& completion) {
    const Action weight = pending_.front();
    pending_.pop_front();
    add(weight, completion);
  }

  const Actions& order_;
  const PipelineCosts& costs_;
  double limit_;
  double slack_;
  size_t next_ = 0;
  double time_ = 0;
  double held_ = 0;
  std::deque<Action> pending_;
};

// `order` with weight parts; empty when it needs more memory than `limit`.
std::optional<Schedule> fill(const Schedule& order, const PipelineCosts& costs, double limit,
                             double slack) {
  Completion completion(order, costs.communication);
  std::vector<WeightFiller> ranks;
  for (const Actions& actions : order.actions) ranks.emplace_back(actions, costs, limit, slack);
  for (bool moved = true; moved;) {
    moved = false;
    for (WeightFiller& rank : ranks) {
      moved |= rank.advance(completion);
      if (rank.exceeded) return {};
    }
  }
  Schedule filled = order;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    TRIREME_ASSERT(ranks[rank].is_over(), order.name, ": rank ", rank, " waits in a circle");
    filled.actions[rank] = std::move(ranks[rank].filled);
  }
  return filled;
}

}  // namespace

double activation_change(const Action& action, double kept_for_weight) {
  switch (action.kind) {
    case ActionKind::kForward: return 1;
    case ActionKind::kBackward: return -1;
    case ActionKind::kBackwardInput: return kept_for_weight - 1;
    case ActionKind::kBackwardWeight: return -kept_for_weight;
    default: return 0;
  }
}

Schedule fill_weight_parts(const std::vector<Schedule>& orders, const ScheduleOptions& options) {
  const double microbatches = options.memory_limit == 0 ? options.num_ranks : options.memory_limit;
  const double limit = microbatches * options.num_chunks;
  std::optional<Schedule> best;
  double best_cost = 0;
  for (const Schedule& order : orders) {
    for (const double slack : {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}) {
      std::optional<Schedule> filled = fill(order, options.costs, limit, slack);
      if (!filled) break;
      const double cost = make_timeline(*filled, options.costs).cost();
      if (best && cost >= best_cost * (1 - kRoundoff)) continue;
      // A margin for roundoff, so equal costs keep the first found.
      best_cost = cost;
      best = std::move(filled);
    }
  }
  TRIREME_CHECK(best.has_value(), "a memory limit of ", microbatches,
                " microbatches per rank is too little for ", orders.front().name, " over ",
                options.num_ranks, " ranks; expected at least ", options.num_ranks);
  return *std::move(best);
}

}  // namespace trireme::parallel
