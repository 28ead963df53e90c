// Ranks as threads, spread over pretended hosts: groups of threads within them, and across them
// what the test chooses.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/hierarchical_communicator.h"

namespace trireme::comm {

// Makes a rank's end of the group across, given one of all ranks.
using OuterMaker = std::function<std::unique_ptr<Communicator>(Communicator& world)>;

inline std::unique_ptr<Communicator> split_outer(Communicator& world) {
  return world.split(0, world.rank(), "outer");
}

// hosts[r]: where rank r pretends to be.
inline HostMap host_map_of(const std::vector<int>& hosts) {
  std::vector<std::string> places;
  for (const int host : hosts) places.push_back(concat(host));
  return HostMap(places);
}

inline void run_hierarchical_ranks(const std::vector<int>& hosts,
                                   const harness::RankFunction& function,
                                   const OuterMaker& make_outer = split_outer,
                                   const GroupOptions& options = {}) {
  const HostMap map = host_map_of(hosts);
  const auto on_rank = [&](Communicator& world) {
    auto inner = world.split(hosts[world.rank()], world.rank(), "inner");
    const auto group = make_hierarchical_group(std::move(inner), make_outer(world), map, "hull");
    function(*group);
  };
  harness::run_ranks(static_cast<int>(hosts.size()), on_rank, options);
}

}  // namespace trireme::comm
