// The report that `trireme train --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/profile/report.h"

namespace trireme::cli::inline internal {

// Lines for people, at most 100 columns wide: ranks, calls and operators, then what bounds the
// step, then the stages of a pipeline.
std::vector<std::string> profile_table(const train::ProfileReport& report);

}  // namespace trireme::cli::inline internal
