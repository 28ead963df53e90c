// What a hub of a run asks of its peers.
#pragma once

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel::inline internal {

// The text that both sides of a connection must have: the run's config and how its keys are cut.
std::string identity_of(const ServerRun& run);

HubOptions hub_options(const ServerRun& run, Role role);

}  // namespace trireme::parallel::inline internal
