// Reads what the runs that `trireme verify` has trained have recorded, and compares it.
#pragma once

#include <span>

#include "trireme/cli/verify/twin_runs.h"
#include "trireme/verify/comparison.h"

namespace trireme::cli {

enum class TellProgress { kNo, kYes };  // on the terminal

// twins: as train_twins() returns them; those of runs with learners are compared one by one
// Throws: ConfigError, CheckpointError when a record is missing or damaged
verify::Comparison compare_twins(std::span<const TwinRun> twins, Tier tier, TellProgress tells);

}  // namespace trireme::cli
