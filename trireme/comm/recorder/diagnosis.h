// Explains a run from its rings. ObservedRun and find_waits() (waits.cc) find out who waits for
// whom; diagnose() decides whose fault it is and says it in plain words: who is late, dead or
// stopped, whose call differs. All are pure functions of their arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/recorder/ring.h"

namespace trireme::comm {

// One group as its members see it. Each ring has its own index for it.
struct ObservedGroup {
  std::string name;
  std::vector<int> members;     // world ranks
  std::map<int, int> index_of;  // world rank -> index in its ring's groups
};

// The rings of a run, by world rank. The ranks it was made of must outlive it. A query takes at
// most logarithmic time in the size of the rings, because anyone may have written them.
class ObservedRun {
 public:
  // ranks: all of one job, each rank once.
  explicit ObservedRun(const std::vector<ObservedRank>& ranks);

  const std::map<int, const ObservedRank*>& ranks() const { return ranks_; }
  const std::vector<ObservedGroup>& groups() const { return groups_; }
  const ObservedGroup* group_of(int rank, const Record& record) const;

  bool has_ring(int rank) const { return ranks_.contains(rank); }
  std::vector<int> missing() const;  // world ranks without a ring
  const Ring& ring(int rank) const { return ranks_.at(rank)->ring; }
  bool is_dead(int rank) const;     // gone without closing its ring
  bool is_stopped(int rank) const;  // by a signal
  bool has_ended(int rank) const { return ring(rank).closed.has_value() || is_dead(rank); }
  WallTime last_event(int rank) const;
  // When the rings were read; for a run that has ended, its last event.
  WallTime now() const { return now_; }

 private:
  void join_groups();

  std::map<int, const ObservedRank*> ranks_;
  std::vector<ObservedGroup> groups_;
  std::map<std::pair<int, int>, size_t> group_of_;  // (rank, index in its ring) -> index in groups_
  WallTime now_{};
};

// Ranks that wait, or did until they gave up, in one call for others that have not made it.
struct Wait {
  std::string group;
  uint64_t sequence = 0;
  std::string operation;
  std::vector<int> waiting;  // world ranks
  std::vector<int> absent;
  bool is_over = false;  // all of those waiting died in the call
  WallTime since = WallTime::max();
  WallTime gave_up = WallTime::max();  // max: still waiting
  bool has_given_up() const { return gave_up != WallTime::max(); }
};

// Ranks that made different calls at one place of a group's sequence.
struct Mismatch {
  std::string group;
  uint64_t sequence = 0;
  std::vector<std::pair<Record, std::vector<int>>> calls;  // with their ranks, fewest first
};

struct Waits {
  std::vector<Wait> waits;  // the longest first
  std::vector<Mismatch> mismatches;
};

// Considers each member's first unfinished call in each group, and the oldest open send and recv of
// each channel, for at most 64 channels per rank. Later calls are consequences of these. Members
// may differ: across hosts, a rank may leave a call that still holds up others. Omits waits shorter
// than `late_after`, unless they have failed or are for a rank that is dead, stopped or has left.
Waits find_waits(const ObservedRun& run, std::chrono::milliseconds late_after);

struct DiagnosisOptions {
  // A live rank is late when others have waited this long for it.
  std::chrono::milliseconds late_after{5000};
};

// One line about the run.
struct Finding {
  // In the order of the findings: the most likely cause first.
  enum class Kind {
    kMismatch,    // ranks made different calls at one place of a group's sequence
    kDied,        // the process is gone and did not close its ring
    kStopped,     // the process is stopped, by SIGSTOP or a debugger
    kMissing,     // the rank has no ring
    kLeft,        // the rank ended normally while others needed it
    kLate,        // the rank runs and has not made the call that others wait in
    kDeadlock,    // ranks wait for each other
    kStuck,       // all ranks have made the call and it does not end
    kFailed,      // a call failed for none of the reasons above
    kWaiting,     // a consequence: shows who waits for whom
    kUnrecorded,  // no rank has recorded a call, so nothing can be said
    kProgress,    // nothing is wrong; the run is in progress
    kFinished,    // nothing is wrong; every rank has ended normally
  };
  Kind kind;
  std::vector<int> ranks;  // world ranks to look at
  // The call in question; an empty operation: none.
  std::string group{};
  uint64_t sequence = 0;
  std::string operation{};
  std::chrono::nanoseconds waited{};  // how long others have waited, or did wait
  std::string text{};
};

// "mismatch", "died", ...
const char* name_of(Finding::Kind kind);

// The findings, most likely cause first. Never empty: a healthy run has one that says so.
// ranks: at least one, all of one job.
std::vector<Finding> diagnose(const std::vector<ObservedRank>& ranks,
                              const DiagnosisOptions& options = {});

// True when no finding is a problem.
bool is_healthy(const std::vector<Finding>& findings);

// "all_reduce(Float [4, 8], sum)", "recv(Float [4], peer 1, tag 7)".
std::string to_string(const Record& record);

// "ended" once the rank has closed its ring, else "running", "stopped", "gone" or "unknown".
const char* process_word(const ObservedRank& rank);

}  // namespace trireme::comm
