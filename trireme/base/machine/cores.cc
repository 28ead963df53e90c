#include "trireme/base/machine/cores.h"

#include <functional>
#include <vector>

#include <sched.h>

namespace trireme::inline internal {

CoreSet allowed_cores() {
  CoreSet allowed;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    for (size_t core = 0; core < allowed.size(); ++core) allowed[core] = CPU_ISSET(core, &cores);
  }
  if (allowed.none()) allowed.set(0);
  return allowed;
}

int num_cores() { return static_cast<int>(allowed_cores().count()); }

// Matches threads to cores. A thread takes a free core, or one whose owner can take another.
bool have_core_each(std::span<const CoreSet> sets) {
  std::vector<int> owners(CoreSet().size(), -1);
  CoreSet tried;
  const std::function<bool(int)> place = [&](int thread) {
    for (size_t core = 0; core < tried.size(); ++core) {
      if (!sets[thread][core] || tried[core]) continue;
      tried.set(core);
      if (owners[core] < 0 || place(owners[core])) {
        owners[core] = thread;
        return true;
      }
    }
    return false;
  };
  for (size_t thread = 0; thread < sets.size(); ++thread) {
    tried.reset();
    if (!place(static_cast<int>(thread))) return false;
  }
  return true;
}

}  // namespace trireme::inline internal
