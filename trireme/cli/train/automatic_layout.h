// parallel.auto: lets the planner choose a run's layout.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::cli::inline internal {

struct AutomaticLayout {
  train::RunConfig config;  // with parallel.auto = false
  std::string line{};       // for the user: what was chosen, and why
};

// A run that has begun in output.folder keeps its layout if it had as many ranks. Otherwise the
// planner's best for the ranks of `group`, which measure themselves for a few seconds unless
// parallel.cluster describes them.
// Collective: every rank of `group`. The same layout on all of them
// Throws:     ConfigError on every rank when none fits
AutomaticLayout choose_layout(const train::RunConfig& config, comm::Communicator& group);

// A layout that the config's checks can be made with before there are ranks; a config without
// parallel.auto as it is.
// Throws: ConfigError when there is none
train::RunConfig with_any_layout(const train::RunConfig& config, int num_ranks);

}  // namespace trireme::cli::inline internal
