// What measured runs of a schedule say: of each stage how long it computes, of each rank how much
// of the run, and of the bubble how much of it the schedule itself explains. Arithmetic alone.
#pragma once

#include <span>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Means over the runs, in seconds.
struct PipelineTimes {
  std::vector<StageCosts> stages;    // of a microbatch; as PipelineProfile::stage_costs()
  std::vector<double> stage_shares;  // of a run's whole time, in which each stage computes
  std::vector<double> waiting;       // of each rank, in a run: as PipelineProfile::waiting
  std::vector<int64_t> bytes_sent;   // of each rank, in a run
  double step = 0;                   // Timeline::cost()
  // Timeline::bubble(): as measured; of the schedule when each stage takes its measured times; and
  // when all take the mean of those, so that no stage is slower than another.
  double bubble = 0;
  double schedule_bubble = 0;
  double even_bubble = 0;
};

// runs: each with the profiles of all ranks, in rank order; at least one. Of ranks whose clocks
// agree.
PipelineTimes pipeline_times(const Schedule& schedule,
                             std::span<const std::vector<PipelineProfile>> runs);

}  // namespace trireme::parallel
