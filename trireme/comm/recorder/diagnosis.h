// Explains a run from its rings, in plain words: who is late, dead or stopped, whose call differs,
// who waits for whom. A pure function of its arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/recorder/ring.h"
#include "trireme/comm/recorder/waits.h"

namespace trireme::comm {

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

}  // namespace trireme::comm
