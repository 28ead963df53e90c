#include "trireme/parallel/pipeline/schedule/schedule_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr double kNotDone = -1;
constexpr size_t kNumParts = 3;

// Both kinds of backward end where the input's gradient is there.
size_t part_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return 0;
  return kind == ActionKind::kBackwardWeight ? 2 : 1;
}

}  // namespace

Completion::Completion(const Schedule& schedule, double communication)
    : schedule_(schedule),
      communication_(communication),
      sources_(schedule.rank_of_stage.size()),
      targets_(schedule.rank_of_stage.size()),
      ends_(kNumParts * schedule.rank_of_stage.size() *
                static_cast<size_t>(schedule.num_microbatches),
            kNotDone) {
  for (const StageEdge& edge : schedule.edges) {
    sources_[edge.to].push_back(edge.from);
    targets_[edge.from].push_back(edge.to);
  }
}

const double& Completion::slot(const Action& action) const {
  const size_t index = static_cast<size_t>(action.stage) * schedule_.num_microbatches +
                       static_cast<size_t>(action.microbatch);
  return ends_[kNumParts * index + part_of(action.kind)];
}

double& Completion::slot(const Action& action) {
  return const_cast<double&>(std::as_const(*this).slot(action));
}

void Completion::finish(const Action& action, double time) { slot(action) = time; }

double Completion::arrival(ActionKind kind, int stage, int to_stage, int microbatch) const {
  const double end = slot({kind, stage, microbatch});
  const bool travels = schedule_.rank_of_stage[stage] != schedule_.rank_of_stage[to_stage];
  // Stages of one rank hand over without a transfer.
  return end < 0 || !travels ? end : end + communication_;
}

double Completion::ready_time(const Action& action) const {
  double ready = 0;
  const auto need = [&](ActionKind kind, int stage) {
    const double time = arrival(kind, stage, action.stage, action.microbatch);
    // Not yet, if any is missing; otherwise the latest.
    ready = ready < 0 || time < 0 ? kNotDone : std::max(ready, time);
  };
  switch (action.kind) {
    case ActionKind::kForward:
      for (const int source : sources_[action.stage]) need(ActionKind::kForward, source);
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      need(ActionKind::kForward, action.stage);
      for (const int target : targets_[action.stage]) need(ActionKind::kBackward, target);
      break;
    case ActionKind::kBackwardWeight: need(ActionKind::kBackwardInput, action.stage); break;
    default: break;
  }
  return ready;
}

// The check performs the lists as strictly as any execution could: a send ends only together with
// its recv. If no rank stands still that way, none does when sends run ahead. Before that every
// list is compared with what must be in it, so the simulation only has to find wrong orders.
// Microbatches of a stage must come in ascending order, in backward and in the weight part; sums of
// gradients then have one order under every schedule, which is why schedules do not change the
// bits.

namespace {

// Identifies a transfer at both of its ends.
using Transfer = std::tuple<bool, int, int, int>;  // gradient, from stage, to stage, microbatch

Transfer transfer_of(const Action& action) {
  const bool gradient =
      action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kRecvGradient;
  return is_send(action.kind)
             ? Transfer{gradient, action.stage, action.peer_stage, action.microbatch}
             : Transfer{gradient, action.peer_stage, action.stage, action.microbatch};
}

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule), done_(schedule) {}

  void check() {
    check_shape();
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      std::map<std::pair<int, bool>, int> last;  // microbatch, by stage and whether a weight part
      for (const Action& action : schedule_.actions[rank]) {
        check_place(rank, action);
        if (is_compute(action.kind)) {
          count(rank, action, last);
        } else {
          check_transfer(rank, action);
        }
      }
    }
    check_all_there();
    simulate();
  }

 private:
  template <typename... Reason>
  void refuse(int rank, const Action& action, const Reason&... reason) const {
    throw ConfigError(
        concat(schedule_.name, ": rank ", rank, ", ", to_string(action), ": ", reason...));
  }

  void check_shape() const {
    for (const int rank : schedule_.rank_of_stage) {
      TRIREME_CHECK(rank >= 0 && rank < schedule_.num_ranks(), schedule_.name,
                    ": a stage is on rank ", rank, "; expected one of ", schedule_.num_ranks());
    }
    for (const StageEdge& edge : schedule_.edges) {
      TRIREME_CHECK(edge.from >= 0 && edge.from < edge.to && edge.to < schedule_.num_stages(),
                    schedule_.name, ": an edge from stage ", edge.from, " to stage ", edge.to,
                    "; expected one to a later of ", schedule_.num_stages(), " stages");
    }
  }

  void check_place(int rank, const Action& action) const {
    if (action.stage < 0 || action.stage >= schedule_.num_stages())
      refuse(rank, action, "there are ", schedule_.num_stages(), " stages");
    if (action.microbatch < 0 || action.microbatch >= schedule_.num_microbatches)
      refuse(rank, action, "there are ", schedule_.num_microbatches, " microbatches");
    const int owner = schedule_.rank_of_stage[action.stage];
    if (owner != rank) refuse(rank, action, "the stage is on rank ", owner);
  }

  void count(int rank, const Action& action, std::map<std::pair<int, bool>, int>& last) {
    const bool weight = action.kind == ActionKind::kBackwardWeight;
    const auto add = [&](ActionKind part) {
      if (!parts_.insert({part, action.stage, action.microbatch}).second)
        refuse(rank, action, "it appears twice");
    };
    if (action.kind == ActionKind::kForward) return add(ActionKind::kForward);
    if (!weight) add(ActionKind::kBackwardInput);
    if (action.kind != ActionKind::kBackwardInput) add(ActionKind::kBackwardWeight);
    const auto [found, first] = last.try_emplace({action.stage, weight}, action.microbatch);
    if (first) return;
    // Gradients are added in this order.
    if (found->second >= action.microbatch) {
      refuse(rank, action, "comes after that of microbatch ", found->second,
             "; expected ascending microbatches");
    }
    found->second = action.microbatch;
  }

  void check_transfer(int rank, const Action& action) {
    const auto [gradient, from, to, microbatch] = transfer_of(action);
    const StageEdge edge = gradient ? StageEdge{to, from} : StageEdge{from, to};
    if (!std::ranges::binary_search(schedule_.edges, edge))
      refuse(rank, action, "there is no such edge");
    if (schedule_.rank_of_stage[from] == schedule_.rank_of_stage[to])
      refuse(rank, action, "both stages are on rank ", rank);
    auto& ends = is_send(action.kind) ? sends_ : recvs_;
    if (!ends.insert(transfer_of(action)).second) refuse(rank, action, "it appears twice");
  }

  void need_part(ActionKind part, int stage, int microbatch) const {
    if (!parts_.contains({part, stage, microbatch}))
      refuse(schedule_.rank_of_stage[stage], {part, stage, microbatch}, "it is missing");
  }

  void need_transfer(bool gradient, int from, int to, int microbatch) const {
    const Transfer transfer{gradient, from, to, microbatch};
    const auto& rank = schedule_.rank_of_stage;
    if (!sends_.contains(transfer)) {
      const auto kind = gradient ? ActionKind::kSendGradient : ActionKind::kSendActivation;
      refuse(rank[from], {kind, from, microbatch, to}, "it is missing");
    }
    if (!recvs_.contains(transfer)) {
      const auto kind = gradient ? ActionKind::kRecvGradient : ActionKind::kRecvActivation;
      refuse(rank[to], {kind, to, microbatch, from}, "it is missing");
    }
  }

  void check_all_there() const {
    for (int microbatch = 0; microbatch < schedule_.num_microbatches; ++microbatch) {
      for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
        for (const ActionKind part :
             {ActionKind::kForward, ActionKind::kBackwardInput, ActionKind::kBackwardWeight})
          need_part(part, stage, microbatch);
      }
      for (const StageEdge& edge : schedule_.edges) {
        if (schedule_.rank_of_stage[edge.from] == schedule_.rank_of_stage[edge.to]) continue;
        need_transfer(false, edge.from, edge.to, microbatch);
        need_transfer(true, edge.to, edge.from, microbatch);
      }
    }
  }

  // A transfer's data has arrived once its rank has passed the recv.
  bool has_arrived(const Action& action) const {
    if (action.kind == ActionKind::kBackwardWeight) return true;
    const bool gradient = action.kind != ActionKind::kForward;
    return std::ranges::all_of(schedule_.edges, [&](const StageEdge& edge) {
      const auto [own, other] =
          gradient ? std::pair(edge.from, edge.to) : std::pair(edge.to, edge.from);
      return own != action.stage ||
             schedule_.rank_of_stage[own] == schedule_.rank_of_stage[other] ||
             received_.contains({gradient, other, own, action.microbatch});
    });
  }

  // Whether the data to be sent has been computed.
  bool is_produced(const Action& send) const {
    const bool gradient = send.kind == ActionKind::kSendGradient;
    return done_.is_done(
        {gradient ? ActionKind::kBackward : ActionKind::kForward, send.stage, send.microbatch});
  }

  const Action* front(int rank) const {
    const auto& actions = schedule_.actions[rank];
    return next_[rank] < actions.size() ? &actions[next_[rank]] : nullptr;
  }

  bool try_step(int rank) {
    const Action& action = *front(rank);
    if (is_compute(action.kind)) {
      if (!done_.is_ready(action) || !has_arrived(action)) return false;
      done_.finish(action);
    } else {
      // A rendezvous, whichever transport will be used.
      // Both ends at once, starting from the sender.
      if (!is_send(action.kind) || !is_produced(action)) return false;
      const int peer = schedule_.rank_of_stage[action.peer_stage];
      const Action* other = front(peer);
      if (other == nullptr || is_compute(other->kind) || is_send(other->kind) ||
          transfer_of(*other) != transfer_of(action))
        return false;
      received_.insert(transfer_of(action));
      ++next_[peer];
    }
    ++next_[rank];
    return true;
  }

  void simulate() {
    next_.assign(schedule_.actions.size(), 0);
    // Any order of trying finds the same end: a step that is possible stays possible.
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
        while (front(rank) != nullptr && try_step(rank)) moved = true;
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const Action* stuck = front(rank);
      if (stuck == nullptr) continue;
      if (is_compute(stuck->kind)) refuse(rank, *stuck, "what it needs is not there by then");
      const int peer = schedule_.rank_of_stage[stuck->peer_stage];
      const Action* other = front(peer);
      refuse(rank, *stuck, "deadlock: rank ", peer, " is at ",
             other == nullptr ? "its end" : to_string(*other));
    }
  }

  const Schedule& schedule_;
  Completion done_;
  std::set<std::tuple<ActionKind, int, int>> parts_;
  std::set<Transfer> sends_, recvs_, received_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<PeakActivations> peak_activations(const Schedule& schedule) {
  std::vector<PeakActivations> peaks;
  for (const auto& actions : schedule.actions) {
    PeakActivations held, peak;
    for (const Action& action : actions) {
      const bool is_forward = action.kind == ActionKind::kForward;
      const bool ends_input =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
      const bool ends_weight =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
      held.until_backward += is_forward - ends_input;
      held.until_weight += is_forward - ends_weight;
      peak.until_backward = std::max(peak.until_backward, held.until_backward);
      peak.until_weight = std::max(peak.until_weight, held.until_weight);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

void check_schedule(const Schedule& schedule) { Checker(schedule).check(); }

}  // namespace trireme::parallel
