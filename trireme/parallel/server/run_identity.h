// The identity that the hubs of a run require of their peers.
#pragma once

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel {

// The text that must be equal on both sides of a connection: the run's config and its pieces.
std::string identity_of(const ServerRun& run);

HubOptions hub_options(const ServerRun& run, Role role);

}  // namespace trireme::parallel
