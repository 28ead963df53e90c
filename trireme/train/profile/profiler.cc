#include "trireme/train/profile/profiler.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/numbers.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/objects.h"
#include "trireme/train/profile/profile_report.h"
#include "trireme/train/profile/span_recording.h"

namespace trireme::train {
namespace {}  // namespace

void check_profile(const ProfileOptions& options, int64_t next_step, int64_t last_step) {
  if (options.num_steps == 0) return;
  TRIREME_CHECK(options.num_steps > 0, "the number of steps to profile is ", options.num_steps,
                "; expected at least 1");
  TRIREME_CHECK(options.warmup_steps >= 0, "the number of steps before the profile is ",
                options.warmup_steps, "; expected at least 0");
  const int64_t left = std::max<int64_t>(0, last_step - next_step + 1);
  TRIREME_CHECK(options.warmup_steps < left, "there is no step to profile: ", left,
                " steps are left to train, up to train.steps = ", last_step, ", and the first ",
                options.warmup_steps,
                " are the warm-up; raise --train.steps or lower "
                "--profile-warmup");
}

class Profiler::Impl {
 public:
  Impl(const ProfileOptions& options, int64_t next_step, comm::Communicator& world)
      : first_step_(next_step + options.warmup_steps),
        last_step_(first_step_ + options.num_steps - 1),
        recorder_(options.recorder),
        world_(world) {}

  void begin_step(int64_t step);
  void enter(Phase phase);
  void end_step();
  bool is_recording() const { return operators_.is_running(); }
  void add_pipeline_run(const parallel::Schedule& schedule, int rank,
                        const parallel::PipelineProfile& run) {
    schedule_ = schedule;
    pipeline_rank_ = rank;
    pipeline_runs_.push_back(run);
  }
  bool is_due(bool run_ends) const {
    return operators_.is_running() && !steps_.empty() && (run_ends || step_ >= last_step_);
  }
  std::optional<ProfileReport> finish(const std::filesystem::path& path);

 private:
  RankProfile take_profile();
  std::vector<RankProfile> gather_profiles();
  ProfileReport report_and_write(const std::vector<RankProfile>& ranks,
                                 const std::filesystem::path& path);

  int64_t first_step_;
  int64_t last_step_;
  std::shared_ptr<const comm::Recorder> recorder_;
  comm::Communicator& world_;
  OperatorRecording operators_;
  std::optional<CallRecording> calls_;
  int64_t step_ = 0;  // the latest begun
  int64_t begun_ns_ = 0;
  std::vector<int64_t> earlier_ns_;  // lengths of steps before the profiled ones
  std::vector<StepSpan> steps_;
  std::vector<PhaseSpan> phases_;               // the last one may be open; its end is then 0
  std::optional<parallel::Schedule> schedule_;  // of a pipeline
  int pipeline_rank_ = 0;
  std::vector<parallel::PipelineProfile> pipeline_runs_;
};

void Profiler::Impl::begin_step(int64_t step) {
  if (step == first_step_) {
    calls_.emplace(recorder_);
    operators_.start();
    world_.barrier()->wait();
  } else if (operators_.is_running()) {
    calls_->collect();
  }
  step_ = step;
  begun_ns_ = monotonic_ns();
  if (operators_.is_running()) phases_.push_back({Phase::kData, {begun_ns_, 0}});
}

void Profiler::Impl::enter(Phase phase) {
  if (!operators_.is_running()) return;
  const int64_t now = monotonic_ns();
  phases_.back().time.end_ns = now;
  phases_.push_back({phase, {now, 0}});
}

void Profiler::Impl::end_step() {
  const int64_t now = monotonic_ns();
  if (operators_.is_running()) {
    phases_.back().time.end_ns = now;
    steps_.push_back({step_, {begun_ns_, now}});
  } else if (step_ < first_step_) {
    earlier_ns_.push_back(now - begun_ns_);
  }
}

// This rank's work in its profiled steps.
RankProfile Profiler::Impl::take_profile() {
  const comm::ProcessIdentity self = comm::own_identity();
  RankProfile profile{.rank = world_.rank(), .host = self.host};
  profile.operators = operators_.stop();
  calls_->move_to(profile);
  profile.steps = steps_;
  profile.phases = std::move(phases_);
  profile.pipeline_runs = std::move(pipeline_runs_);
  profile.pipeline_rank = pipeline_rank_;
  const TimeSet whole({{steps_.front().time.begin_ns, steps_.back().time.end_ns}});
  const auto is_outside = [&](const auto& item) {
    return (TimeSet({item.time}) & whole).total_ns() == 0;
  };
  std::erase_if(profile.operators, is_outside);
  std::erase_if(profile.calls, is_outside);
  return profile;
}

// On rank 0: all ranks' profiles on its clock. Empty on other ranks.
std::vector<RankProfile> Profiler::Impl::gather_profiles() {
  const RankProfile mine = take_profile();
  const std::vector<int64_t> offsets =
      clock_offsets(world_, {comm::own_identity().boot_id, monotonic_ns});
  const std::vector<std::string> texts = comm::gather_strings(world_, to_bytes(mine), 0);
  std::vector<RankProfile> profiles;
  for (const std::string& text : texts) {
    profiles.push_back(rank_profile_of(text));
    shift(profiles.back(), -offsets.at(profiles.size() - 1));
  }
  return profiles;
}

std::optional<ProfileReport> Profiler::Impl::finish(const std::filesystem::path& path) {
  const std::vector<RankProfile> ranks = gather_profiles();
  std::optional<ProfileReport> report;
  // All ranks wait here, even for a slow disk, so that no later step waits for rank 0.
  checkpoint::from_root(world_, [&](const checkpoint::Peers&) {
    report = report_and_write(ranks, path);
    return std::string();
  });
  return report;
}

ProfileReport Profiler::Impl::report_and_write(const std::vector<RankProfile>& ranks,
                                               const std::filesystem::path& path) {
  const std::vector<RankStates> states = states_of(ranks);
  ProfileReport report = make_report(ranks, states);
  std::vector<int64_t> profiled_ns;
  for (const StepSpan& step : steps_) profiled_ns.push_back(step.time.length_ns());
  // The first step of a process is not typical.
  if (earlier_ns_.size() > 1) {
    earlier_ns_.erase(earlier_ns_.begin());
    report.slowdown =
        static_cast<double>(median(profiled_ns)) / static_cast<double>(median(earlier_ns_));
  }
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw Error(concat("cannot make ", path.parent_path().string(), ": ", error.message()));
  if (schedule_) {
    report.pipeline = summarize_pipeline(ranks, *schedule_);
    report.pipeline->drawing = path.parent_path() / "pipeline.svg";
    write_file_atomically(report.pipeline->drawing, draw(*report.pipeline));
  }
  write_file_atomically(path, chrome_trace(ranks, states, report));
  report.trace = path;
  return report;
}

Profiler::Profiler(const ProfileOptions& options, int64_t next_step, comm::Communicator& world)
    : impl_(std::make_unique<Impl>(options, next_step, world)) {}

Profiler::~Profiler() = default;

void Profiler::begin_step(int64_t step) { impl_->begin_step(step); }
void Profiler::enter(Phase phase) { impl_->enter(phase); }
void Profiler::end_step() { impl_->end_step(); }
bool Profiler::is_recording() const { return impl_->is_recording(); }
void Profiler::add_pipeline_run(const parallel::Schedule& schedule, int rank,
                                const parallel::PipelineProfile& run) {
  impl_->add_pipeline_run(schedule, rank, run);
}
bool Profiler::is_due(bool run_ends) const { return impl_->is_due(run_ends); }
std::optional<ProfileReport> Profiler::finish(const std::filesystem::path& path) {
  return impl_->finish(path);
}

}  // namespace trireme::train
