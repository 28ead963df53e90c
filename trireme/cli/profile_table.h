// What `trireme train --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/profile/report.h"

namespace trireme::cli {

// Lines for people, none of them wider than 100 columns but for the trace's path: ranks, calls,
// operators, what bounds the step.
std::vector<std::string> profile_table(const train::ProfileReport& report);

}  // namespace trireme::cli
