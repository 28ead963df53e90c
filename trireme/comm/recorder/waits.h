// Who waits for whom, out of the rings of a run. Pure: it looks at its arguments and at nothing
// else; whose fault it is, and the words for it, are diagnosis.h's.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/recorder/ring.h"

namespace trireme::comm {

// One group as its members see it. Rings know the group by an index of their own.
struct ObservedGroup {
  std::string name;
  std::vector<int> members;     // world ranks
  std::map<int, int> index_of;  // world rank -> index in its ring's groups
};

// The rings of a run, by world rank. Lives no longer than the ranks it was made of. A question
// takes no longer than the logarithm of what the rings hold: they may be anybody's.
class ObservedRun {
 public:
  // ranks: of one job, each rank once.
  explicit ObservedRun(const std::vector<ObservedRank>& ranks);

  const std::map<int, const ObservedRank*>& ranks() const { return ranks_; }
  const std::vector<ObservedGroup>& groups() const { return groups_; }
  const ObservedGroup* group_of(int rank, const Record& record) const;

  bool has_ring(int rank) const { return ranks_.contains(rank); }
  std::vector<int> missing() const;  // ranks of the world that have no ring
  const Ring& ring(int rank) const { return ranks_.at(rank)->ring; }
  bool is_dead(int rank) const;     // gone without having closed its ring
  bool is_stopped(int rank) const;  // by a signal
  bool has_ended(int rank) const { return ring(rank).closed.has_value() || is_dead(rank); }
  WallTime last_event(int rank) const;
  // When the rings were read; of a run that has ended, its last event.
  WallTime now() const { return now_; }

 private:
  void join_groups();

  std::map<int, const ObservedRank*> ranks_;
  std::vector<ObservedGroup> groups_;
  std::map<std::pair<int, int>, size_t> group_of_;  // (rank, index in its ring) -> in groups_
  WallTime now_{};
};

// Ranks that wait, or waited until they gave up, in one call for others that have not made it.
struct Wait {
  std::string group;
  uint64_t sequence = 0;
  std::string operation;
  std::vector<int> waiting;  // world ranks
  std::vector<int> absent;
  bool is_over = false;  // all of those waiting died in it
  WallTime since = WallTime::max();
  WallTime gave_up = WallTime::max();  // max: they still wait
  bool has_given_up() const { return gave_up != WallTime::max(); }
};

// Ranks that made different calls at one place of a group's sequence.
struct Mismatch {
  std::string group;
  uint64_t sequence = 0;
  std::vector<std::pair<Record, std::vector<int>>> calls;  // with their ranks, the fewest first
};

struct Waits {
  std::vector<Wait> waits;  // the longest first
  std::vector<Mismatch> mismatches;
};

// Of each group and member the first call that it has not finished: across hosts a rank may have
// gone on from a call that holds others up. Of each channel the oldest open send and recv, of at
// most 64 channels a rank. What follows these is a consequence. Waits shorter than
// `late_after` are left out, unless they have failed, or wait for a rank that is dead, stopped or
// has left.
Waits find_waits(const ObservedRun& run, std::chrono::milliseconds late_after);

}  // namespace trireme::comm
