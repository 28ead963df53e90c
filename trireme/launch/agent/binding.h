// Which cores of this host each worker runs on.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/machine/cores.h"

namespace trireme::launch::inline internal {

// Divides the cores that this process may use among `num_workers`, so that neighbours share caches
// and a NUMA node (hwloc; without it, consecutive numbers). Empty when there are fewer cores than
// workers: then the kernel does better.
std::vector<CoreSet> divide_cores(int num_workers);

// "0-3,8".
std::string to_text(const CoreSet& cores);

}  // namespace trireme::launch::inline internal
