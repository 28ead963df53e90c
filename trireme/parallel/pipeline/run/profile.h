// Measurements of one run of a pipeline on one rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {

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

}  // namespace trireme::parallel
