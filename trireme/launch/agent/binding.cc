#include "trireme/launch/agent/binding.h"

#include <climits>

#ifdef TRIREME_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
namespace {

#ifdef TRIREME_HAVE_HWLOC

// Empty when the topology cannot be read.
std::vector<CoreSet> divide_by_topology(int num_workers) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return {};
  std::vector<CoreSet> parts;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    std::vector<hwloc_cpuset_t> sets(num_workers);
    if (hwloc_distrib(topology, &root, 1, sets.data(), num_workers, INT_MAX, 0) == 0) {
      for (const hwloc_cpuset_t set : sets) {
        CoreSet part;
        int core = -1;
        while ((core = hwloc_bitmap_next(set, core)) >= 0) {
          if (static_cast<size_t>(core) < part.size()) part.set(core);
        }
        parts.push_back(part);
        hwloc_bitmap_free(set);
      }
    }
  }
  hwloc_topology_destroy(topology);
  return parts;
}

#else

std::vector<CoreSet> divide_by_topology(int) { return {}; }

#endif

// Consecutive numbers.
std::vector<CoreSet> divide_by_number(const CoreSet& cores, int num_workers) {
  std::vector<CoreSet> parts(num_workers);
  const size_t count = cores.count();
  size_t index = 0;
  for (size_t core = 0; core < cores.size(); ++core) {
    if (cores.test(core)) parts[index++ * num_workers / count].set(core);
  }
  return parts;
}

}  // namespace

std::vector<CoreSet> divide_cores(int num_workers) {
  const CoreSet cores = allowed_cores();
  if (num_workers < 1 || cores.count() < static_cast<size_t>(num_workers)) return {};
  std::vector<CoreSet> parts = divide_by_topology(num_workers);
  bool is_usable = !parts.empty();
  for (CoreSet& part : parts) {
    part &= cores;
    is_usable &= part.any();
  }
  return is_usable ? parts : divide_by_number(cores, num_workers);
}

std::string to_text(const CoreSet& cores) {
  std::string text;
  for (size_t first = 0; first < cores.size(); ++first) {
    if (!cores.test(first)) continue;
    size_t last = first;
    while (last + 1 < cores.size() && cores.test(last + 1)) ++last;
    text += concat(text.empty() ? "" : ",", first);
    if (last > first) text += concat("-", last);
    first = last;
  }
  return text;
}

}  // namespace trireme::launch::inline internal
