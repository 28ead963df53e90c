// The allowed and the observed staleness: the number of steps by which workers are apart.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trireme::parallel {

// No worker starts a step that is more than this many steps ahead of the slowest worker's.
// 0: synchronous. A step's gradients are summed in the order of the workers, as all_reduce() does,
// and applied once.
// Otherwise each worker's gradient is applied when it arrives.
// Source: Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
//         server", NeurIPS
inline constexpr int64_t kAsynchronous = -1;

struct Consistency {
  int64_t staleness = 0;  // or kAsynchronous
  bool is_synchronous() const { return staleness == 0; }
};

// Steps ahead of the slowest worker -> number of pulls of a piece that were answered then.
using StalenessCounts = std::map<int64_t, int64_t>;

void add(StalenessCounts& to, const StalenessCounts& counts);
// {"0": 120, "1": 17}
std::string to_json(const StalenessCounts& counts);

}  // namespace trireme::parallel
