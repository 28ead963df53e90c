// Summarises a pipeline from the profiled steps: its stages, the transfers between its ranks, and
// its bubble. Pure functions of what the ranks recorded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/pipeline_times.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

struct PipelineSummary {
  parallel::Schedule schedule{};
  parallel::PipelineTimes times{};  // means over steps and pipelines
  // By rank of a pipeline: seconds per step in which data moved to it, with both its sender and
  // itself there, hidden or not. Empty if calls are not recorded.
  std::vector<double> moving{};
  int num_pipelines = 1;            // side by side, on parts of the batch
  parallel::Timeline last_run{};    // the last step in seconds, in world rank 0's pipeline
  std::filesystem::path drawing{};  // the file, once written
};

// ranks: in world-rank order and on one clock, each with one run per step. The first ranks at each
// place of the pipeline axis form one pipeline, the second ones the next, and so on.
PipelineSummary summarize_pipeline(const std::vector<RankProfile>& ranks,
                                   const parallel::Schedule& schedule);

// Draws the last step's run as an SVG file.
std::string draw(const PipelineSummary& summary);

}  // namespace trireme::train
