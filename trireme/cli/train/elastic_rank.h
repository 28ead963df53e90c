// A rank under an elastic agent (`trireme run`): survives the loss of its peers in the same
// process.
#pragma once

#include <functional>
#include <optional>

#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/train/config/config.h"
#include "trireme/train/profile/profiler.h"

namespace trireme::cli::inline internal {

struct ElasticRun {
  std::function<train::RunConfig()> load_config;  // called anew for each epoch
  train::ProfileOptions profile{};                // of the first epoch
  // The first epoch, and this process's part in it. Nothing: waits for the agent to name one.
  std::optional<comm::WorldInfo> first{};
  int64_t first_epoch = 1;
};

// Trains as a worker of the agent behind the descriptor `agent_fd` (launch/link). When a peer is
// lost or the agent says so, gives up all groups, tells the agent, waits for the next epoch, and
// goes on from the newest checkpoint. Ends like a rank without an agent when the run ends, is
// stopped, or fails for another reason. A rank that cannot give up its groups in time ends its
// process with exit code 3.
// Returns the exit code.
// Throws: as Trainer; CommError when the agent is gone
int run_elastic_rank(const ElasticRun& run, int agent_fd);

}  // namespace trireme::cli::inline internal
