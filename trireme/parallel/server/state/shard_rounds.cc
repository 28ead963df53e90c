// A shard's rounds: see Consistency.
#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/parallel/server/state/shard_state.h"

namespace trireme::parallel {

// A worker that was late does not wait: the weights have changed since it took them, so it gets
// what there is, and its push is in the round under way. So a worker waits for a round only as long
// as it has the newest weights. That is why workers never wait for each other in a circle, though
// each piece has rounds of its own and ends them with workers of its own: of the pieces for which
// somebody waits, take the one whose last round ended first. Everybody who waits has since pushed
// to every piece, and so to this one, to whose round nobody is missing then.

void ShardState::check_difference(const Held& held, const Frame& event) const {
  const FrameHeader& header = event.header;
  TRIREME_CHECK(header.num_rows == 0 && !held.piece.is_sparse, "a push in rounds to piece ",
                held.index, " has rows; expected a dense piece");
  TRIREME_CHECK(header.learning_rate >= 0 && header.learning_rate <= 1e15, "a push to piece ",
                held.index, " has the weight ", header.learning_rate, "; expected 0 to 1e15");
  TRIREME_CHECK(header.base <= held.version, "a push to piece ", held.index, " is of version ",
                header.base, "; expected at most ", held.version);
  (void)held.update->read_difference(held.piece, event.payload);
}

ShardState::Round ShardState::round_of(const Held& held) const {
  std::set<uint32_t> pushed;
  for (const auto& [step, pushes] : held.waiting) {
    for (const auto& [worker, push] : pushes) pushed.insert(worker.first);
  }
  if (pushed.empty()) return Round::kOpen;
  int64_t missing = 0;
  bool may_end = true;
  for (const auto& [worker, member] : members_) {
    if (away_.contains(worker) || pushed.contains(worker)) continue;
    ++missing;
    const int64_t missed = held.version - held.combined.at(worker);
    if (consistency_.staleness != kAsynchronous && missed >= consistency_.staleness)
      may_end = false;
  }
  if (missing == 0) return Round::kHasAll;
  // Who has pushed and then gone away counts on both sides.
  const int64_t there = std::ssize(pushed) + missing;
  const bool has_quorum = std::ssize(pushed) >= std::min(consistency_.quorum, there);
  return has_quorum && may_end ? Round::kHasQuorum : Round::kOpen;
}

void ShardState::end_if_due(Held& held) {
  const Round round = round_of(held);
  const bool has_no_grace = consistency_.grace.count() == 0;
  if (round == Round::kHasAll || (round == Round::kHasQuorum && has_no_grace)) end_round(held);
}

void ShardState::end_round(Held& held) {
  std::vector<const Frame*> pushes;
  for (const auto& [step, of_step] : held.waiting) {
    for (const auto& [worker, push] : of_step) pushes.push_back(&push);
  }
  // By worker, which fixes the order of the sum.
  std::ranges::stable_sort(pushes, {}, [](const Frame* push) { return push->header.worker; });
  std::vector<Difference> differences;
  std::set<uint32_t> workers;
  for (const Frame* const push : pushes) {
    differences.push_back(
        {held.update->read_difference(held.piece, push->payload), push->header.learning_rate});
    if (push->header.learning_rate > 0) workers.insert(push->header.worker);
    staleness_.push_back(held.version - push->header.base);
  }
  const auto mean = weighted_mean(differences);
  ++held.version;
  for (const Frame* const push : pushes) {
    const auto member = members_.find(push->header.worker);
    if (member != members_.end()) held.combined[push->header.worker] = held.version;
  }
  held.num_combined = std::ssize(workers);
  held.waiting.clear();
  if (!mean) return;  // of workers that had nothing to say
  held.update->apply(held.weights, {.values = *mean}, /*learning_rate=*/1, held.version);
  held.published.reset();
}

std::optional<int64_t> ShardState::waiting_base(const Held& held, uint32_t worker) {
  std::optional<int64_t> base;
  for (const auto& [step, pushes] : held.waiting) {
    for (const auto& [from, push] : pushes) {
      if (from.first == worker) base = push.header.base;
    }
  }
  return base;
}

bool ShardState::is_waiting(uint32_t piece, uint32_t worker) const {
  return has_rounds() && waiting_base(find(piece), worker).has_value();
}

std::map<uint32_t, int64_t> ShardState::in_grace() const {
  std::map<uint32_t, int64_t> found;
  if (!has_rounds()) return found;
  for (const auto& [index, held] : held_) {
    if (round_of(held) == Round::kHasQuorum) found[index] = held.version;
  }
  return found;
}

Frame ShardState::closing(uint32_t piece) const {
  Frame event;
  event.header = {.kind = FrameKind::kEvent,
                  .part = static_cast<uint16_t>(EventKind::kClose),
                  .shard = static_cast<uint32_t>(shard_),
                  .piece = piece,
                  .step = version(piece) + 1};
  return event;
}

}  // namespace trireme::parallel
