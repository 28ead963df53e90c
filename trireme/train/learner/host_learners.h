// parallel.learners = "hosts": one learner per host.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The number of hosts.
// Throws: ConfigError unless there are several, each with as many consecutive ranks
int learners_of(const comm::HostMap& hosts);

// Replaces "hosts" by that number, so that the saved config has it: the hosts of the ranks that are
// not parameter servers. Does nothing with a number.
// host:       this rank's
// Comm:       that of all_gather_strings()
// Collective: every rank
// Throws:     as learners_of(), on all ranks
void place_learners(RunConfig& config, comm::Communicator& world,
                    const std::string& host = comm::host_identity());

}  // namespace trireme::train
