// Evaluates measured runs of a schedule: how long each stage computes, which share of the run that
// is, and how much of the bubble the schedule itself explains. Pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Means over the runs, in seconds.
struct PipelineTimes {
  std::vector<StageCosts> stages;    // per microbatch; as PipelineProfile::stage_costs()
  std::vector<double> stage_shares;  // the share of a run's time in which each stage computes
  std::vector<double> waiting;       // by rank, per run; as PipelineProfile::waiting
  std::vector<int64_t> bytes_sent;   // by rank, per run
  double step = 0;                   // Timeline::cost()
  // Timeline::bubble() as measured, for the schedule with each stage's measured times, and for the
  // schedule with their mean for every stage, so that no stage is slower than another.
  double bubble = 0;
  double schedule_bubble = 0;
  double even_bubble = 0;
};

// runs: at least one; each has the profiles of all ranks, in rank order. The ranks' clocks must
// agree.
PipelineTimes pipeline_times(const Schedule& schedule,
                             std::span<const std::vector<PipelineProfile>> runs);

}  // namespace trireme::parallel
