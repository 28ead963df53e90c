// What a rank can find out about its peers without a call, while it does something else for long.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// A group that can tell.
class KnowsLosses {
 public:
  virtual ~KnowsLosses() = default;
  // Why the group is of no use any more: it was aborted, here or by a peer, or a peer died or left.
  // "": nothing is known. Returns at once. Thread safe.
  virtual std::string known_loss() const = 0;
};

// Ends a group of which a loss is known. Groups within a host know (thread, shm, and the part of a
// hierarchical group that is within the host); others find out in their next call.
// doing: what the rank waits for, "the data"
// Throws: CommError
void check_peers(Communicator& group, const std::string& doing);

}  // namespace trireme::comm
