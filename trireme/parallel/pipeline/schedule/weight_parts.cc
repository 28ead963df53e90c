#include "trireme/parallel/pipeline/schedule/weight_parts.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/dependencies.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel::inline internal {
namespace {

using Actions = std::vector<Action>;

// Sums that should be equal differ by roundoff.
constexpr double kRoundoff = 1e-9;

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
      best_cost = cost;
      best = std::move(filled);
    }
  }
  TRIREME_CHECK(best.has_value(), "a memory limit of ", microbatches,
                " microbatches per rank is too little for ", orders.front().name, " over ",
                options.num_ranks, " ranks; expected at least ", options.num_ranks);
  return *std::move(best);
}

}  // namespace trireme::parallel::inline internal
