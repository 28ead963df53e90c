#include "trireme/comm/recorder/diagnosis.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

namespace trireme::comm {

// Collectives are joined by place: the k-th of a group is the same call on all of its ranks, so
// those that have begun it wait for those that have not. Only a rank's first open call counts,
// because its later ones are a consequence. Messages have no common place; an open one is matched
// with what its peer has open in the same channel. Short waits are normal, and the rings are not
// read at one moment. So only those waits are kept that are long, that are for a dead or stopped
// rank, or that hold up a rank for which others have waited for long. Whose fault a wait is,
// diagnosis.cc decides.

namespace {

// Whether two ranks' records of one place agree where they must.
bool same_call(const Record& a, const Record& b) {
  const bool same_size = a.elements < 0 || b.elements < 0 || a.elements == b.elements;
  return same_size && std::tie(a.operation, a.dtype, a.reduce_op, a.peer) ==
                          std::tie(b.operation, b.dtype, b.reduce_op, b.peer);
}

// More channels than a sane rank has open.
// Each costs a look at all peers, and a damaged ring may name another one in every record.
constexpr size_t kMostChannels = 64;

class WaitFinder {
 public:
  WaitFinder(const ObservedRun& run, std::chrono::milliseconds late_after)
      : run_(run), late_after_(late_after) {
    sort_records();
  }

  Waits find() {
    for (const ObservedGroup& group : run_.groups()) find_collective_waits(group);
    for (const auto& [rank, observed] : run_.ranks()) find_message_waits(rank);
    keep_what_matters();
    std::ranges::stable_sort(result_.waits, {}, &Wait::since);
    return std::move(result_);
  }

 private:
  static bool is_done(const Record& record) { return record.state == CallState::kDone; }
  // A call that was still open when its rank ended normally counts as failed.
  WallTime failure_of(int rank, const Record& record) const {
    if (record.state == CallState::kFailed) return record.ended;
    return run_.ring(rank).closed.value_or(WallTime::max());
  }

  // The calls at one place of a group's sequence, by rank.
  using Calls = std::map<int, const Record*>;
  // A rank's open sends to a peer, or recvs from it or from anyone (-1): rank, group, peer, tag.
  using Channel = std::tuple<int, const ObservedGroup*, int, int>;

  void sort_records();
  void find_collective_waits(const ObservedGroup& group);
  bool find_mismatch(const ObservedGroup& group, uint64_t sequence, const Calls& records);
  bool is_absent(const ObservedGroup& group, int rank, uint64_t sequence, const Record* record,
                 WallTime gave_up) const;
  void find_message_waits(int rank);
  bool has_match(int rank, const Record& record, int peer, const ObservedGroup& group) const;
  void add_the_dead(Wait& wait, const Calls& records) const;
  bool matters(const Wait& wait) const;
  void keep_what_matters();

  const ObservedRun& run_;
  std::chrono::milliseconds late_after_;
  std::map<const ObservedGroup*, std::map<uint64_t, Calls>> calls_;
  std::map<Channel, std::set<std::string>> open_;  // their operations
  Waits result_;
};

void WaitFinder::sort_records() {
  for (const auto& [rank, observed] : run_.ranks()) {
    for (const Record& record : observed->ring.records) {
      const ObservedGroup* const group = run_.group_of(rank, record);
      if (group == nullptr) continue;
      if (!record.is_point_to_point) {
        calls_[group][record.sequence][rank] = &record;
      } else if (!is_done(record) && record.peer < std::ssize(group->members)) {
        // A damaged record may name any peer.
        const int peer = record.peer < 0 ? -1 : group->members[record.peer];
        open_[{rank, group, peer, record.tag}].insert(record.operation);
      }
    }
  }
}

void WaitFinder::find_collective_waits(const ObservedGroup& group) {
  std::set<int> held;  // in a wait found before; their later calls are its consequence
  for (const auto& [sequence, records] : calls_[&group]) {
    // Behind a wait a difference would be its consequence.
    if (held.empty() && find_mismatch(group, sequence, records)) return;
    const auto open = std::ranges::find_if(records, [&](const auto& item) {
      return !is_done(*item.second) && !held.contains(item.first);
    });
    if (open == records.end()) continue;
    Wait wait;
    wait.group = group.name;
    wait.sequence = sequence;
    wait.operation = open->second->operation;
    for (const auto& [rank, record] : records) {
      if (!is_done(*record)) wait.gave_up = std::min(wait.gave_up, failure_of(rank, *record));
    }
    for (const int member : group.members) {
      const auto found = records.find(member);
      const Record* record = found == records.end() ? nullptr : found->second;
      if (is_absent(group, member, sequence, record, wait.gave_up)) {
        wait.absent.push_back(member);
      } else if (record != nullptr && !is_done(*record) && !held.contains(member)) {
        wait.waiting.push_back(member);
        wait.since = std::min(wait.since, record->issued);
      }
    }
    if (wait.waiting.empty()) add_the_dead(wait, records);
    // Nobody waits: a rank died or stopped on its way out of a call that its peers had finished.
    if (wait.waiting.empty()) continue;
    held.insert(wait.waiting.begin(), wait.waiting.end());
    held.insert(wait.absent.begin(), wait.absent.end());
    result_.waits.push_back(std::move(wait));
    // No rank is late: those that have left the call wait for those that have not.
    if (result_.waits.back().absent.empty()) return;
  }
}

// When a launcher kills all ranks after one has died (mpirun), those that died in the call were
// waiting for those that had not begun it.
void WaitFinder::add_the_dead(Wait& wait, const Calls& records) const {
  const auto waited = [&](int rank) { return run_.is_dead(rank) && records.contains(rank); };
  const bool is_whole = std::ranges::all_of(wait.absent, waited);
  const bool all_dead =
      std::ranges::all_of(wait.absent, [&](int rank) { return run_.is_dead(rank); });
  if (is_whole || !all_dead) return;
  wait.is_over = true;
  std::ranges::copy_if(wait.absent, std::back_inserter(wait.waiting), waited);
  std::erase_if(wait.absent, waited);
  for (const int rank : wait.waiting) {
    wait.since = std::min(wait.since, records.at(rank)->issued);
  }
}

bool WaitFinder::is_absent(const ObservedGroup& group, int rank, uint64_t sequence,
                           const Record* record, WallTime gave_up) const {
  if (!run_.has_ring(rank) || !group.index_of.contains(rank)) return true;
  // No record: the call has not been made, or the ring has overwritten it.
  if (record == nullptr) {
    return run_.ring(rank).groups[group.index_of.at(rank)].num_collectives < sequence;
  }
  if (is_done(*record)) return false;
  // A rank that came after the others had given up was late, though it failed as well.
  if (record->state == CallState::kFailed) return record->issued > gave_up;
  return run_.is_dead(rank) || run_.is_stopped(rank) || record->state == CallState::kIssued ||
         record->issued > gave_up;
}

bool WaitFinder::find_mismatch(const ObservedGroup& group, uint64_t sequence,
                               const Calls& records) {
  Mismatch found{.group = group.name, .sequence = sequence, .calls = {}};
  for (const auto& [rank, record] : records) {
    const auto same = std::ranges::find_if(
        found.calls, [&](const auto& call) { return same_call(call.first, *record); });
    if (same != found.calls.end()) {
      same->second.push_back(rank);
    } else {
      found.calls.push_back({*record, {rank}});
    }
  }
  if (found.calls.size() < 2) return false;
  // The fewest first: they are named as the odd ones.
  std::ranges::stable_sort(found.calls, {}, [](const auto& call) { return call.second.size(); });
  result_.mismatches.push_back(std::move(found));
  return true;
}

// Whether a peer has made the matching send or recv, and it is still open there.
bool WaitFinder::has_match(int rank, const Record& record, int peer,
                           const ObservedGroup& group) const {
  return std::ranges::any_of(std::array{rank, -1}, [&](int its_peer) {
    const auto found = open_.find({peer, &group, its_peer, record.tag});
    return found != open_.end() &&
           (found->second.size() > 1 || !found->second.contains(record.operation));
  });
}

void WaitFinder::find_message_waits(int rank) {
  std::set<std::tuple<int, std::string, int, int>> seen;  // the oldest call of each channel
  for (const Record& record : run_.ring(rank).records) {
    if (!record.is_point_to_point || is_done(record) || run_.is_dead(rank) || run_.is_stopped(rank))
      continue;
    const ObservedGroup* const group = run_.group_of(rank, record);
    if (group == nullptr || record.peer >= std::ssize(group->members)) continue;
    if (!seen.insert({record.group, record.operation, record.peer, record.tag}).second) continue;
    if (seen.size() > kMostChannels) return;
    std::vector<int> peers = group->members;
    if (record.peer >= 0) peers = {group->members[record.peer]};
    std::erase(peers, rank);
    Wait wait;
    wait.group = group->name;
    wait.sequence = record.sequence;
    wait.operation = record.operation;
    wait.waiting = {rank};
    wait.since = record.issued;
    wait.gave_up = failure_of(rank, record);
    std::ranges::copy_if(peers, std::back_inserter(wait.absent), [&](int peer) {
      return (run_.has_ring(peer) && (run_.is_dead(peer) || run_.is_stopped(peer))) ||
             !has_match(rank, record, peer, *group);
    });
    // Any source: one sender is enough.
    if (record.peer < 0 && wait.absent.size() < peers.size()) wait.absent.clear();
    result_.waits.push_back(std::move(wait));
  }
}

// Short waits are normal. These are worth reporting.
bool WaitFinder::matters(const Wait& wait) const {
  return wait.has_given_up() || run_.now() - wait.since >= late_after_ ||
         std::ranges::any_of(wait.absent, [this](int rank) {
           return run_.has_ring(rank) && (run_.has_ended(rank) || run_.is_stopped(rank));
         });
}

// A short wait also matters when it holds up a rank that others have waited for long.
void WaitFinder::keep_what_matters() {
  std::set<int> awaited;
  std::vector<Wait> kept;
  // Until nothing changes: each wait that is kept makes more ranks awaited.
  for (bool grows = true; grows;) {
    grows = std::erase_if(result_.waits, [&](Wait& wait) {
              const bool holds_up = std::ranges::any_of(
                  wait.waiting, [&](int rank) { return awaited.contains(rank); });
              if (!matters(wait) && !(holds_up && !wait.absent.empty())) return false;
              awaited.insert(wait.absent.begin(), wait.absent.end());
              kept.push_back(std::move(wait));
              return true;
            }) > 0;
  }
  result_.waits = std::move(kept);
}

}  // namespace

ObservedRun::ObservedRun(const std::vector<ObservedRank>& ranks) {
  for (const ObservedRank& rank : ranks) ranks_.emplace(rank.ring.rank, &rank);
  const bool is_live = std::ranges::any_of(
      ranks, [this](const ObservedRank& rank) { return !has_ended(rank.ring.rank); });
  for (const auto& [rank, observed] : ranks_) {
    now_ = std::max(now_, is_live ? observed->ring.now : last_event(rank));
  }
  join_groups();
}

std::vector<int> ObservedRun::missing() const {
  std::vector<int> missing;
  const int world_size = ranks_.empty() ? 0 : ranks_.begin()->second->ring.world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!has_ring(rank)) missing.push_back(rank);
  }
  return missing;
}

bool ObservedRun::is_dead(int rank) const {
  return has_ring(rank) && !ring(rank).closed && ranks_.at(rank)->process == ProcessState::kGone;
}

bool ObservedRun::is_stopped(int rank) const {
  return has_ring(rank) && !ring(rank).closed && ranks_.at(rank)->process == ProcessState::kStopped;
}

WallTime ObservedRun::last_event(int rank) const {
  WallTime last = ring(rank).closed.value_or(ring(rank).created);
  for (const Record& record : ring(rank).records) {
    last = std::max({last, record.issued, record.started, record.ended});
  }
  for (const RecordedStep& step : ring(rank).steps) last = std::max({last, step.began, step.ended});
  return last;
}

// The k-th group with a given name and members in one ring is the k-th of them in every ring.
void ObservedRun::join_groups() {
  std::map<std::tuple<std::string, std::vector<int>, int>, ObservedGroup> joined;
  for (const auto& [rank, observed] : ranks_) {
    std::map<std::pair<std::string, std::vector<int>>, int> seen;
    const auto& groups = observed->ring.groups;
    for (size_t i = 0; i < groups.size(); ++i) {
      const int nth = seen[{groups[i].name, groups[i].world_ranks}]++;
      ObservedGroup& group = joined[{groups[i].name, groups[i].world_ranks, nth}];
      group.name = groups[i].name;
      group.members = groups[i].world_ranks;
      group.index_of[rank] = static_cast<int>(i);
    }
  }
  for (auto& [key, group] : joined) {
    for (const auto& [rank, index] : group.index_of) group_of_[{rank, index}] = groups_.size();
    groups_.push_back(std::move(group));
  }
}

const ObservedGroup* ObservedRun::group_of(int rank, const Record& record) const {
  const auto found = group_of_.find({rank, record.group});
  return found == group_of_.end() ? nullptr : &groups_[found->second];
}

Waits find_waits(const ObservedRun& run, std::chrono::milliseconds late_after) {
  return WaitFinder(run, late_after).find();
}

}  // namespace trireme::comm
