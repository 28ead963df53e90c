// Finds out where the time of the profiled steps went. Pure functions of what the ranks recorded.
// docs/guide/profile.md explains the rules.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/train/profile/spans.h"

namespace trireme::train {

// The time at which the last rank entered each collective. Spans must be on one clock.
class Arrivals {
 public:
  explicit Arrivals(const std::vector<RankProfile>& ranks);
  // The part of a rank's call before the last rank of its group came; empty for point to point.
  Span wait(const RankProfile& rank, const CallSpan& call) const;

 private:
  using Key = std::tuple<std::string, std::vector<int>, uint64_t>;  // group, members, sequence
  std::map<Key, int64_t> last_ns_;
};

// Divides a rank's steps by what it did. computing, data, exposed and idle never overlap; together
// they cover the steps.
struct RankStates {
  TimeSet steps;
  // With a GPU: when its kernels run, except NCCL's. Without: when the steps' thread is in a phase
  // that computes, and neither in a foreground call nor waiting for a background one.
  TimeSet computing;
  // Calls, waits for them, and NCCL's kernels. Parts of it are hidden behind computing or data.
  TimeSet communication;
  TimeSet data;     // the steps' thread loads data and nothing computes
  TimeSet exposed;  // communication, and neither computing nor data
  TimeSet late;     // the part of exposed before the last rank came
  TimeSet idle;
};

// In the order of `ranks`.
std::vector<RankStates> states_of(const std::vector<RankProfile>& ranks);

// The time of an operator itself, without the operators, calls and waits inside it.
struct OwnTime {
  std::string name;  // code of a phase outside operators: "optimizer: other code"
  int64_t own_ns = 0;
  int64_t flops = 0;
  bool is_operator = true;
};

// The own times of everything that computed in the steps: the operators of the steps' thread, or
// with a GPU its kernels, except NCCL's.
std::vector<OwnTime> own_times(const RankProfile& rank);

}  // namespace trireme::train
