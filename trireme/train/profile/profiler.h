// Profiles a few steps of a run: libtorch's profiler and the flight recorder on every rank, joined
// on rank 0 into one trace and one report. Before and after those steps it only takes times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/train/profile/report.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

struct ProfileOptions {
  // Steps to profile; 0: none. A few show what repeats, and the trace stays small.
  int64_t num_steps = 0;
  // Steps of this process before them: the first ones allocate, and touch everything once.
  int64_t warmup_steps = 5;
  // Where this rank's calls are recorded; null: the profile shows no calls.
  std::shared_ptr<const comm::Recorder> recorder = nullptr;
};

// Checks that steps `next_step` to `last_step`, which a process is about to run, hold the first
// step to profile. More than there are: those there are.
// Throws: ConfigError
void check_profile(const ProfileOptions& options, int64_t next_step, int64_t last_step);

// Thread safety: all calls from the thread that runs the steps. One in a process: ranks that are
// threads cannot each have one.
class Profiler {
 public:
  // `next_step`: the first that the process runs. `world` outlives it.
  Profiler(const ProfileOptions& options, int64_t next_step, comm::Communicator& world);
  ~Profiler();

  // Of every step. The first profiled one starts with a barrier, on the same terms for all ranks.
  // Collective: every rank
  void begin_step(int64_t step);
  // From now on the step is in `phase`.
  void enter(Phase phase);
  void end_step();
  // Whether the latest step to begin is one to profile.
  bool is_recording() const;
  // What this rank, the pipeline's `rank`, did of the schedule in a recorded step: after each, or
  // never.
  void add_pipeline_run(const parallel::Schedule& schedule, int rank,
                        const parallel::PipelineProfile& run);

  // The last step to profile has ended, or a profiled one has and the run ends.
  bool is_due(bool run_ends) const;
  // Stops recording. Rank 0 writes the trace to `path`, making its folder, and of a pipeline
  // pipeline.svg beside it, and gets the report.
  // Comm:       every rank's spans to rank 0, some 100 bytes an operator; clock_offsets()
  // Collective: every rank, once
  // Throws:     Error when the file cannot be written
  std::optional<ProfileReport> finish(const std::filesystem::path& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A step's scope: begins it in Phase::kData, ends it. A null profiler costs a comparison.
class StepScope {
 public:
  StepScope(Profiler* profiler, int64_t step) : profiler_(profiler) {
    if (profiler_ != nullptr) profiler_->begin_step(step);
  }
  ~StepScope() {
    if (profiler_ != nullptr) profiler_->end_step();
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  void enter(Phase phase) {
    if (profiler_ != nullptr) profiler_->enter(phase);
  }

 private:
  Profiler* profiler_;
};

}  // namespace trireme::train
