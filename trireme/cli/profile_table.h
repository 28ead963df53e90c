// What `trireme train --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/profile/report.h"

namespace trireme::cli {

// Lines for people: ranks, calls and operators in at most 100 columns, then what bounds the step,
// and the stages of a pipeline.
std::vector<std::string> profile_table(const train::ProfileReport& report);

}  // namespace trireme::cli
