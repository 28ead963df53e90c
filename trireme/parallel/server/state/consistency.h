// The allowed and the observed staleness: the number of steps, or of rounds, by which workers are
// apart.
#pragma once

#include <chrono>
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

//
// With a quorum, workers push differences in rounds, one after the other for each piece. A round
// ends when all workers have pushed to it, or once `quorum` of them have and `grace` has passed
// since; but not while a worker without a push has missed as many rounds as `staleness` says. Then
// the weights change once, by the mean of the round's differences, weighted by what each worker
// says of its own. A later push goes into the next round.
// Source: arXiv:2604.21428 (Decoupled DiLoCo)
struct Consistency {
  int64_t staleness = 0;  // or kAsynchronous
  int64_t quorum = 0;     // 0: no rounds
  std::chrono::milliseconds grace{0};

  bool has_rounds() const { return quorum > 0; }
  bool is_synchronous() const { return !has_rounds() && staleness == 0; }
};

// Steps ahead of the slowest worker -> number of pulls of a piece that were answered then. In
// rounds: rounds of a piece that ended between a worker's pull and the one with its push, but for
// the latter -> number of pushes.
using StalenessCounts = std::map<int64_t, int64_t>;

void add(StalenessCounts& to, const StalenessCounts& counts);
// {"0": 120, "1": 17}
std::string to_json(const StalenessCounts& counts);

}  // namespace trireme::parallel
