// What was measured of a pipeline, for people: `trireme bench pipeline --run` and
// `trireme train --profile` print the same table.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/pipeline_times.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::cli {

// A line a stage, then the bubble. moving: of each rank, seconds a step; empty: not known.
std::vector<std::string> pipeline_table(const parallel::Schedule& schedule,
                                        const parallel::PipelineTimes& times,
                                        const std::vector<double>& moving = {});

}  // namespace trireme::cli
