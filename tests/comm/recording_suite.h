// What every transport leaves in the flight recorder; each function is run by every rank of a group
// of any size.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Each transport leaves the same records of the same calls: collectives, messages, coalesced ones,
// loans, in front and behind, and those of sub-groups, which begin with "join".
void check_recording(Communicator& group);
// A call that fails, in front or behind, is recorded as failed.
void check_recorded_failures(Communicator& group);

}  // namespace trireme::comm
