// The output of `trireme bench pipeline`: a schedule's timeline, its numbers, and a run on local
// ranks whose stages sleep instead of computing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::cli {

// A model and how it is cut. Times are for a rank's whole share of the model and one microbatch;
// schedules with several stages per rank divide them.
struct PipelineCase {
  std::string schedule = "1f1b";
  int num_ranks = 4;
  int num_chunks = 0;  // stages per rank; 0: the schedule's own number
  int num_microbatches = 8;
  parallel::StageCosts milliseconds = {10, 10, 10};
  double communication_milliseconds = 0;
  double kept_for_weight = 1;
  double memory_limit = 0;  // microbatches; 0: num_ranks
};

struct MeasuredPipeline {
  parallel::Timeline timeline;  // milliseconds
  parallel::PipelineTimes times{};
  double step_milliseconds = 0;
  double bubble = 0;
};

struct PipelineReport {
  PipelineCase what;
  parallel::Schedule schedule;
  parallel::Timeline timeline;  // milliseconds
  int num_chunks = 1;
  double ideal_milliseconds = 0;  // a step without a bubble
  double step_milliseconds = 0;
  double bubble = 0;                     // of the step
  std::optional<double> formula_bubble;  // of the step; empty if no formula applies
  // By rank, in microbatches of a rank's whole share of the model.
  std::vector<double> peak_until_backward;
  std::vector<double> peak_until_weight;
  int transfers = 0;  // sends of the busiest rank
  std::optional<MeasuredPipeline> measured;
};

// Makes the schedule, checks it and times it.
// Throws: ConfigError when the case is out of the schedule's range
PipelineReport plan_pipeline(const PipelineCase& what);

// Runs report.schedule with the executor. Ranks are threads of this process, and stages sleep for
// the given times. Returns the best of `num_runs`.
MeasuredPipeline run_sleeping(const PipelineReport& report, int num_runs);

// Timeline, numbers and a line per rank.
std::string show_pipeline(const PipelineReport& report, int width, bool color);
// A table with a line per report.
std::string compare_pipelines(std::span<const PipelineReport> reports);
// A list of objects: schedule, stages, chunks, microbatches, step_milliseconds, ideal_milliseconds,
// bubble, formula_bubble (null if there is none), idle_shares, peak_until_backward,
// peak_until_weight, transfers; and if it was run measured_step_milliseconds, measured_bubble.
std::string json_list(std::span<const PipelineReport> reports);

}  // namespace trireme::cli
