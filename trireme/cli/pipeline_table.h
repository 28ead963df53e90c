// The measurements of a pipeline as a table for people. `trireme bench pipeline --run` and `trireme
// train --profile` print the same one.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/pipeline_times.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::cli::inline internal {

// A line per stage, then the bubble. moving: seconds per step, by rank; empty: unknown.
std::vector<std::string> pipeline_table(const parallel::Schedule& schedule,
                                        const parallel::PipelineTimes& times,
                                        const std::vector<double>& moving = {});

}  // namespace trireme::cli::inline internal
