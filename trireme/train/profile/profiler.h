// Profiles a few steps of a run. libtorch's profiler and the flight recorder run on every rank;
// rank 0 joins them into one trace and one report. Outside those steps it only measures times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/train/profile/profile_report.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

struct ProfileOptions {
  // Steps to profile; 0: none. A few show what repeats and keep the trace small.
  int64_t num_steps = 0;
  // Steps of this process before them. The first steps allocate memory and touch everything once.
  int64_t warmup_steps = 5;
  // Records this rank's calls, and every step of the run for the watchdog, profiled or not; null:
  // the profile shows no calls.
  std::shared_ptr<comm::Recorder> recorder = nullptr;
};

// Checks that the first step to profile is among steps `next_step` to `last_step`, which a process
// is about to run. If there are fewer steps than requested, those are profiled.
// Throws: ConfigError
void check_profile(const ProfileOptions& options, int64_t next_step, int64_t last_step);

// Thread safety: only the thread that runs the steps. One per process, so ranks that are threads
// cannot each have one.
class Profiler {
 public:
  // `next_step`: the first step that the process runs. `world` must outlive it.
  Profiler(const ProfileOptions& options, int64_t next_step, comm::Communicator& world);
  ~Profiler();

  // Call for every step. The first profiled step starts with a barrier, so that all ranks begin
  // together.
  // Collective: every rank
  void begin_step(int64_t step);
  // The step is in `phase` from now on.
  void enter(Phase phase);
  void end_step();
  // Whether the step that began last is one to profile.
  bool is_recording() const;
  // Adds what this rank, the pipeline's `rank`, did of the schedule in a recorded step. Call it
  // after every recorded step or never.
  void add_pipeline_run(const parallel::Schedule& schedule, int rank,
                        const parallel::PipelineProfile& run);

  // Whether the last step to profile has ended, or the run ends after at least one.
  bool is_due(bool run_ends) const;
  // Stops recording. Rank 0 writes the trace to `path`, making its folder, and for a pipeline
  // pipeline.svg beside it. Returns the report on rank 0.
  // Comm:       every rank's spans to rank 0, some 100 bytes per operator; clock_offsets()
  // Collective: every rank, once
  // Throws:     Error when the file cannot be written
  std::optional<ProfileReport> finish(const std::filesystem::path& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The scope of a step: begins it in Phase::kData, and ends it. A null profiler costs a comparison.
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
