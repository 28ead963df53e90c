// What one run of a pipeline took on one rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "trireme/parallel/pipeline/schedule.h"
#include "trireme/parallel/pipeline/schedule_check.h"
#include "trireme/parallel/pipeline/timeline.h"

namespace trireme::parallel {

struct PipelineProfile {
  std::vector<TimedAction> actions;  // computations, in seconds since `begin`
  std::chrono::steady_clock::time_point begin;
  std::chrono::nanoseconds waiting{0};  // for data from other ranks, and for sends at the end
  int64_t bytes_sent = 0;
  PeakActivations peak;  // as counted while it ran

  // Mean times of a stage of this rank, in seconds. A backward that was not split counts as
  // backward_input.
  StageCosts stage_costs(int stage) const;
};

// The ranks' profiles of one run as a timeline in seconds: what was measured, in the form of what the
// schedule promises. Of ranks on one host, whose clocks agree.
Timeline measured_timeline(const std::vector<PipelineProfile>& profiles);

}  // namespace trireme::parallel
