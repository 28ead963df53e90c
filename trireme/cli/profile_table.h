// The report that `trireme train --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/train/profile/profile_report.h"

namespace trireme::cli {

// Lines for people, at most 100 columns wide: ranks, calls and operators, then what bounds the
// step, then the stages of a pipeline.
std::vector<std::string> profile_table(const train::ProfileReport& report);

// The measurements of a pipeline as a table for people. `trireme bench pipeline --run` and `trireme
// train --profile` print the same one.

// A line per stage, then the bubble. moving: seconds per step, by rank; empty: unknown.
std::vector<std::string> pipeline_table(const parallel::Schedule& schedule,
                                        const parallel::PipelineTimes& times,
                                        const std::vector<double>& moving = {});

}  // namespace trireme::cli
