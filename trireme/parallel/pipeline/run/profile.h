// Measurements of runs of a pipeline: one run on one rank, and the evaluation of several.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {

// Measurements of one run of a pipeline on one rank.
struct PipelineProfile {
  std::vector<TimedAction> actions;  // computations, in seconds since `begin`
  std::chrono::steady_clock::time_point begin;
  std::chrono::nanoseconds waiting{0};  // for data from other ranks, and for sends at the end
  int64_t bytes_sent = 0;
  PeakActivations peak;  // counted during the run

  // Mean times of one of this rank's stages, in seconds. A backward that was not split counts as
  // backward_input.
  StageCosts stage_costs(int stage) const;
};

// Every rank's profile, in rank order.
// Comm: 8 bytes per rank, then every rank's actions (32 bytes each) to all
// Collective: every rank
std::vector<PipelineProfile> gather_profiles(comm::Communicator& group,
                                             const PipelineProfile& profile);

// Combines the ranks' profiles of one run into a timeline in seconds, to compare with that of the
// schedule. The ranks must be on one host, so that their clocks agree.
Timeline measured_timeline(const std::vector<PipelineProfile>& profiles);

// Evaluates measured runs of a schedule: how long each stage computes, which share of the run that
// is, and how much of the bubble the schedule itself explains. Pure arithmetic.

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
