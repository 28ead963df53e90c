// What the profiled steps say of a pipeline: its stages, the ranks between them, and its bubble.
// Pure functions of what the ranks recorded.
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
  // Of each rank of a pipeline, seconds a step in which something came to it: its sender and itself
  // were both there. Hidden or not. Empty where calls are not recorded.
  std::vector<double> moving{};
  int num_pipelines = 1;          // that run side by side on parts of the batch
  parallel::Timeline last_run{};  // the last step, seconds; of the pipeline that world rank 0 is in
  std::filesystem::path drawing{};  // the file, once written
};

// ranks: in world-rank order and on one clock, each with a run a step. Of the ranks at one place on
// the pipeline axis the first belong to one pipeline, the second to the next.
PipelineSummary summarize_pipeline(const std::vector<RankProfile>& ranks,
                                   const parallel::Schedule& schedule);

// An SVG file: the last step's run.
std::string draw(const PipelineSummary& summary);

}  // namespace trireme::train
