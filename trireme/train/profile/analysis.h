// Where the time of the profiled steps went: pure functions of what the ranks recorded. The rules
// in
// words: docs/profile.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/train/profile/spans.h"
#include "trireme/train/profile/time_set.h"

namespace trireme::train {

// When the last rank came to each collective. Spans must be on one clock.
class Arrivals {
 public:
  explicit Arrivals(const std::vector<RankProfile>& ranks);
  // The part of a rank's call before the last rank of its group came; empty for point to point.
  Span wait(const RankProfile& rank, const CallSpan& call) const;

 private:
  using Key = std::tuple<std::string, std::vector<int>, uint64_t>;  // group, members, sequence
  std::map<Key, int64_t> last_ns_;
};

// What a rank did within its steps. computing, data, exposed and idle never overlap and are
// together all of the steps.
struct RankStates {
  TimeSet steps;
  // With a GPU: its kernels run, NCCL's apart. Without: the steps' thread is in a phase that
  // computes, and in no foreground call and no wait for a background one.
  TimeSet computing;
  // Calls, waits for them, NCCL's kernels; parts of it are hidden behind computing or data.
  TimeSet communication;
  TimeSet data;     // the steps' thread loads data, and nothing computes
  TimeSet exposed;  // communication, and neither computing nor data
  TimeSet late;     // the part of exposed before the last rank had come
  TimeSet idle;
};

// By index of `ranks`.
std::vector<RankStates> states_of(const std::vector<RankProfile>& ranks);

// Time that an operator spent itself, not in the operators, calls and waits within it.
struct OwnTime {
  std::string name;  // code of a phase that is in no operator: "optimizer: other code"
  int64_t own_ns = 0;
  int64_t flops = 0;
  bool is_operator = true;
};

// Of everything that computed in the steps: the operators of the steps' thread; with a GPU its
// kernels instead, NCCL's apart.
std::vector<OwnTime> own_times(const RankProfile& rank);

}  // namespace trireme::train
