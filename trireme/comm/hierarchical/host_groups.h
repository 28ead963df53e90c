// Splits a group by the hosts of its ranks.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

struct HostGroups {
  std::unique_ptr<Communicator> within;   // the ranks of this rank's host
  std::unique_ptr<Communicator> between;  // the ranks with its place, one on each host
  bool is_split() const { return within != nullptr; }
};

// Both groups, in rank order, where several hosts have as many consecutive ranks each, and more
// than one. Otherwise none.
// host:       host_identity()
// Comm:       that of all_gather_strings() and of two splits
// Collective: every rank
HostGroups split_by_host(Communicator& group, const std::string& host);

}  // namespace trireme::comm
