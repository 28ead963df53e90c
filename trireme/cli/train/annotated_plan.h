// Plans for annotated tasks: a traced step, its splits, and the layout of a run with them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/plan/shard/shard_plan.h"
#include "trireme/train/annotated/annotated_task.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// Null for a task of another kind.
const train::AnnotatedTask* annotated_task_of(const train::RunConfig& config);

struct AnnotatedPlan {
  spmd::Graph graph;
  plan::ShardPlan plan;
  double step_seconds = 0;  // of the plan, and of the host that starts its operators
  std::string notes;        // the value of parallel.notes
  spmd::Annotations annotations;
};
// Of a microbatch of `samples` for all ranks of the axes. The task's own annotations stay.
// Throws: ConfigError when the step cannot be traced or split, or no split fits the memory
AnnotatedPlan plan_annotated(const train::AnnotatedTask& task, const train::RunConfig& config,
                             const plan::ShardOptions& options, int64_t samples);

struct AnnotatedChoice {
  std::vector<train::Override> keys{};
  std::string what{};  // in words
  double step_seconds = 0;
  double kept_bytes = 0;
  int num_candidates = 0;
};
// The fastest of the layouts of data and tensor ranks. The config's data is open.
// Throws: ConfigError when none can run
AnnotatedChoice choose_annotated(const train::RunConfig& config, const plan::Cluster& cluster,
                                 int num_ranks);
// The layout of a run that has begun, in the keys that choose_annotated() chooses.
AnnotatedChoice annotated_choice_of(const train::RunConfig& begun);

}  // namespace trireme::cli
