// The processor cores that a process may use.
#pragma once

#include <bitset>
#include <span>

namespace trireme::inline internal {

using CoreSet = std::bitset<1024>;  // 128 bytes, readable by other processes of the host

// The cores this thread may run on; at least one.
CoreSet allowed_cores();
int num_cores();

// Whether threads restricted to `sets` can all run at once, each on its own core.
bool have_core_each(std::span<const CoreSet> sets);

}  // namespace trireme::inline internal
