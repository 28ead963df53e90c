// The planner's choices beside published layouts and sweeps.
#pragma once

#include <vector>

#include "benchmarks/plan/published.h"

namespace trireme::benchmarks {

// Prints, separated by tabs, a line for each model, cluster, batch and number of devices:
// the layout that plan::search() takes, and the published layout that the simulator finds fastest.
void print_choices(const std::vector<PublishedRow>& rows);

// The same for each of them of which at least `kLeastSweep` layouts were measured: the layout that
// the simulator finds fastest among those, and its place in the order that was measured.
inline constexpr size_t kLeastSweep = 5;
void print_picks(const std::vector<PublishedRow>& rows);

}  // namespace trireme::benchmarks
