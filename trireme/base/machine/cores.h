// What the machine gives a process.
#pragma once

#include <bitset>
#include <span>

namespace trireme {

using CoreSet = std::bitset<1024>;  // 128 bytes that another process of the host can read

// The cores this thread may run on; at least one.
CoreSet allowed_cores();
int num_cores();

// Whether threads that may run on `sets` can all run at once, each on a core of its own.
bool have_core_each(std::span<const CoreSet> sets);

}  // namespace trireme
