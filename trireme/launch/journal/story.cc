#include "trireme/launch/journal/story.h"

#include <algorithm>
#include <map>

#include "trireme/base/clock.h"

namespace trireme::launch {
namespace {

// Steps first + 1 to last, which took `seconds`.
struct Segment {
  int64_t first = 0;
  int64_t last = 0;
  double seconds = 0;
};

// Follows the events of a run as a state machine. It charges every second to exactly one of: kept
// steps, the start, a cause. The sum is the wall time, and a test of random events holds that.
// Steps are kept as segments, because an epoch may go on from before them: then the share of each
// is taken back and charged to the cause.
class Teller {
 public:
  void tell(const Event& event);
  Story finish(std::optional<WallTime> until);

 private:
  enum class Phase { kNoJob, kStarting, kRunning, kDown };

  void advance(WallTime time, double uptime = 0);
  void end_running(int64_t step);
  void start(const Event& event);
  void fail(const Event& event);
  void recover(const Event& event);
  void end(const Event& event);
  void go_back_to(int64_t step);
  void note_late(int64_t step);

  Story story_;
  std::map<std::string, CauseShare> causes_;
  std::map<std::string, int64_t> hosts_;
  std::vector<Segment> segments_;  // kept so far, in order

  Phase phase_ = Phase::kNoJob;
  WallTime now_{};            // of the latest event
  double uptime_ = 0;         // its own; 0: unknown
  double clock_ = 0;          // seconds that have been told
  double phase_seconds_ = 0;  // of kStarting and kRunning
  int64_t first_step_ = -1;   // the last finished one when the phase began
  int64_t newest_step_ = 0;   // finished, and not gone back from
  std::string cause_;         // of kDown
  double failed_ = 0;         // by `clock_`
  bool is_failure_ = false;   // kDown is one, not a change of the hosts
  std::string change_ = "change of hosts";
};

void Teller::advance(WallTime time, double uptime) {
  const bool knows_both = uptime_ > 0 && uptime >= uptime_;
  // The clock may have been set back, or another host leads now.
  const double by_host = now_ == WallTime() ? 0 : std::max(0.0, in_seconds(time - now_));
  // By the leader's uptime when both events have it. The host's clock may have been set.
  const double seconds = knows_both ? uptime - uptime_ : by_host;
  now_ = knows_both ? time : std::max(now_, time);
  uptime_ = uptime;
  clock_ += seconds;
  // Between two jobs nobody waits for the run.
  if (phase_ == Phase::kNoJob) return;
  story_.wall_seconds += seconds;
  if (phase_ == Phase::kDown) {
    causes_[cause_].down_seconds += seconds;
  } else {
    phase_seconds_ += seconds;
  }
}

// The steps of the phase that ends now are kept until an epoch goes on from before them.
void Teller::end_running(int64_t step) {
  // An epoch that says nothing about its first step has run from its start on.
  const bool has_run = phase_ == Phase::kRunning || step > first_step_;
  if (phase_ == Phase::kStarting && !has_run) story_.start_seconds += phase_seconds_;
  // A phase that reported steps has run, even if no recovery event said so.
  if (phase_ == Phase::kRunning || (phase_ == Phase::kStarting && has_run)) {
    segments_.push_back({first_step_, std::max(first_step_, step), phase_seconds_});
  }
  phase_seconds_ = 0;
  newest_step_ = std::max(newest_step_, step);
}

// Steps that were finished before a failure, and reported after it.
void Teller::note_late(int64_t step) {
  if (segments_.empty() || step <= newest_step_) return;
  segments_.back().last = newest_step_ = step;
}

void Teller::go_back_to(int64_t step) {
  const int64_t num_steps = newest_step_ - step;
  if (num_steps > 0) causes_[cause_].num_repeated_steps += num_steps;
  newest_step_ = step;
  double repeated = 0;
  while (!segments_.empty() && segments_.back().last > step) {
    Segment& segment = segments_.back();
    const int64_t kept = std::clamp(step, segment.first, segment.last) - segment.first;
    // Time without a finished step is lost with the step.
    const double seconds = kept == 0 ? 0
                                     : segment.seconds * static_cast<double>(kept) /
                                           static_cast<double>(segment.last - segment.first);
    repeated += segment.seconds - seconds;
    segment = {segment.first, segment.first + kept, seconds};
    // Only the segment that holds the step is divided; those behind it are gone whole.
    if (kept > 0) break;
    segments_.pop_back();
  }
  if (repeated > 0) causes_[cause_].repeated_seconds += repeated;
}

void Teller::start(const Event& event) {
  const bool is_new_job = phase_ == Phase::kNoJob || event.epoch <= 1;
  if (is_new_job && phase_ != Phase::kNoJob) ++story_.num_without_end;
  // Nobody knows how long a job went on whose leader was killed.
  if (is_new_job) {
    now_ = event.time;
    uptime_ = 0;
  }
  advance(event.time, event.uptime);
  if (is_new_job) {
    if (phase_ != Phase::kDown) end_running(event.step);
    // It belongs to no cause: somebody started the run again.
    cause_ = "restart";
    phase_ = Phase::kStarting;
  } else if (phase_ != Phase::kDown) {
    end_running(event.step);
    phase_ = Phase::kDown;
    cause_ = change_;
    is_failure_ = false;
  } else {
    note_late(event.step);
  }
  // The event names the step after which it goes on; unknown counts as the beginning.
  first_step_ = std::max<int64_t>(0, event.step);
  ++story_.num_epochs;
  story_.has_ended = false;
  story_.end_cause.clear();
}

void Teller::fail(const Event& event) {
  advance(event.time, event.uptime);
  if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) end_running(event.step);
  // A failure outside of a job stops nothing.
  if (phase_ != Phase::kNoJob) phase_ = Phase::kDown;
  cause_ = event.cause.empty() ? "unknown" : event.cause;
  failed_ = clock_;
  is_failure_ = true;
  ++causes_[cause_].num_failures;
  ++story_.num_failures;
  if (!event.host.empty()) ++hosts_[event.host];
}

void Teller::recover(const Event& event) {
  advance(event.time, event.uptime);
  if (phase_ == Phase::kDown && is_failure_) {
    // The event's own duration is the leader's measurement, and more exact than the difference of
    // two times.
    story_.recovery_seconds.push_back(event.seconds > 0 ? event.seconds : clock_ - failed_);
  }
  if (phase_ == Phase::kStarting) story_.start_seconds += phase_seconds_;
  if (phase_ == Phase::kStarting || phase_ == Phase::kDown) {
    phase_ = Phase::kRunning;
    phase_seconds_ = 0;
    if (event.step <= 0) return;
    go_back_to(event.step - 1);
    first_step_ = newest_step_ = event.step;
  }
}

void Teller::end(const Event& event) {
  advance(event.time, event.uptime);
  end_running(event.step);
  phase_ = Phase::kNoJob;
  story_.has_ended = true;
  story_.end_cause = event.cause;
}

void Teller::tell(const Event& event) {
  story_.last_step = std::max(story_.last_step, event.step);
  switch (event.kind) {
    case EventKind::kStart: return start(event);
    case EventKind::kFailure: return fail(event);
    case EventKind::kRecovery: return recover(event);
    case EventKind::kEnd: return end(event);
    case EventKind::kJoin:
    case EventKind::kLeave:
      change_ = event.kind == EventKind::kJoin ? "host joined" : "host left";
      return advance(event.time, event.uptime);
    case EventKind::kNotice:
      // An alert is a rank's, which does not know the leader's clock; the next event does.
      if (event.uptime == 0 && uptime_ > 0) return;
      return advance(event.time, event.uptime);
    default: return advance(event.time, event.uptime);
  }
}

Story Teller::finish(std::optional<WallTime> until) {
  if (until) advance(*until);
  // Steps that were finished after the last event are not known.
  end_running(first_step_);
  for (const Segment& segment : segments_) story_.kept_seconds += segment.seconds;
  for (auto& [cause, share] : causes_) {
    share.cause = cause;
    story_.causes.push_back(share);
  }
  std::ranges::stable_sort(story_.causes, [](const CauseShare& a, const CauseShare& b) {
    return a.lost_seconds() > b.lost_seconds();
  });
  story_.hosts.assign(hosts_.begin(), hosts_.end());
  std::ranges::stable_sort(story_.hosts,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  return story_;
}

}  // namespace

Story story_of(const EventLog& log, std::optional<WallTime> until) {
  Teller teller;
  for (const Event& event : log.events) teller.tell(event);
  return teller.finish(until);
}

}  // namespace trireme::launch
