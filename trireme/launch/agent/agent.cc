// Length: one loop. Its turns share the agent's whole state, and half of them have a reason beside
// them.
#include "trireme/launch/agent/agent.h"

#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/cancellation.h"
#include "trireme/launch/agent/crew.h"
#include "trireme/launch/agent/job_output.h"
#include "trireme/launch/agent/leader.h"
#include "trireme/launch/agent/line.h"
#include "trireme/launch/agent/link_probe.h"
#include "trireme/launch/agent/store_line.h"
#include "trireme/launch/jobs/notice_watch.h"
#include "trireme/launch/membership/failure.h"
#include "trireme/launch/process/rank_environment.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// One thread runs the loop of run() and owns all members. Whatever may hang works elsewhere: the
// store line and the link probe have threads of their own, and output and flight recorders go
// through task queues. A turn never waits longer than kTick, so a full terminal or a dead network
// cannot delay the end of a lease. The order of a turn matters. Signals come first, so that a host
// that is asked to leave says so in this turn's report. The lease comes before the crew, because
// the guard kills the workers of a lapsed agent, and such a death must not be told as a failure.
// The report comes after follow(), so that it shows what the plan has changed. The leader decides
// last and hears its own report. A fenced host comes back under a new id: the leader has counted
// the old one out.

namespace {

// Also how often the leader decides, and how soon a signal is heeded while the agents meet.
constexpr std::chrono::milliseconds kTick{100};
// A look reads the ring of every worker, 0.1 ms each (benchmarks/watchdog.cc), so it is rarer than
// a tick.
constexpr std::chrono::milliseconds kWatchInterval{500};
// Output waits for a worker to name the run's folder. The wait ends kFolderPatience after a worker
// has written something, since programs that name a folder do that first; kSilentPatience if none
// has written, since it may still be loading; or when kMaxHeldBytes are held.
constexpr std::chrono::seconds kFolderPatience{2};
constexpr std::chrono::seconds kSilentPatience{60};
// Bounds memory: a worker may write much before it names its folder.
constexpr size_t kMaxHeldBytes = size_t{1} << 20;
// A leader that is started again needs time to load; after this the job is lost.
constexpr std::chrono::seconds kRejoinPatience{60};
// The leader finds out anyway after the lease, so a dead one must not delay the end.
constexpr std::chrono::seconds kGoodbyePatience{1};

std::optional<bool> leads(const AgentOptions& options) {
  return options.node_rank < 0 ? std::nullopt : std::optional(options.node_rank == 0);
}

}  // namespace

class Agent {
 public:
  Agent(const AgentOptions& options, std::shared_ptr<AgentObserver> observer);
  int run();

 private:
  bool meet(std::optional<bool> leads, std::chrono::milliseconds timeout);
  void wait();
  void take_signals();
  void take_notices();
  void follow(const Plan& plan);
  void leave_after(const std::string& notice);
  void leave_job();
  void drill();
  void watch();
  void check_lease();
  void fence(const std::string& reason);
  bool has_work_of_before(const Plan& plan) const;
  bool rejoin();
  void lead();
  void choose_folder();
  void say_goodbye();
  HostReport make_report() const;
  struct End {
    int code = 0;
    std::string reason;
  };
  End how_it_ended() const;
  bool is_over() const;

  const AgentOptions options_;
  JobOutput output_;
  SignalWatch signals_;
  std::unique_ptr<Line> line_;
  std::optional<Leader> leader_;
  LinkProbe probe_;
  Crew crew_;
  DrillPerformer drill_;
  NoticeWatch notices_;
  WatchThread watch_;
  std::vector<Observation> observations_;
  LinkProbe::Answer links_;
  Plan plan_;  // the newest that was carried out
  std::string id_ = unique_name();
  int port_ = free_port();
  bool is_admitted_ = false;  // a plan has had this host
  bool is_leaving_ = false;
  bool is_ending_ = false;
  bool is_fenced_ = false;
  bool knows_run_ = false;  // a worker has named its folder
  std::string notice_;
  std::optional<std::string> refusal_;
  std::optional<Clock::time_point> held_since_;    // output, by lack of a folder
  std::optional<Clock::time_point> spoken_since_;  // a worker
  Clock::time_point next_watch_ = Clock::now();
};

Agent::Agent(const AgentOptions& options, std::shared_ptr<AgentObserver> observer)
    : options_(options),
      output_(options.host, std::move(observer)),
      signals_({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}),
      crew_(options_, output_),
      drill_(options.host),
      notices_({.command = options.notice_command, .interval = options.notice_interval}),
      watch_({.host = options.host}) {
  output_.set_folder(options_.folder);
}

int Agent::run() {
  if (!meet(leads(options_), options_.join_timeout)) {
    output_.say("run     asked to stop before the agents had met: " + notice_, /*epoch=*/0);
    output_.finish();
    return 0;
  }
  if (!options_.endpoint.empty()) probe_ = probe_between_ranks(options_.environment, *line_);
  if (line_->leads()) leader_.emplace(options_, *line_, output_);
  while (!is_over()) {
    wait();
    take_signals();
    take_notices();
    check_lease();  // before the guard's kill can look like a failure
    crew_.update(/*has_to_run=*/plan_.phase == Phase::kRun && !is_fenced_);
    follow(line_->plan());
    const bool is_free = plan_.phase == Phase::kRun && plan_.find(id_) == nullptr;
    if (is_leaving_ && is_free && !is_ending_ && !leader_) leave_job();
    drill();
    watch();
    links_ = probe_.poll();
    line_->report(make_report());
    // After the report, so that the leader decides with its own host's newest state.
    if (leader_) lead();
    choose_folder();
    output_.poll(Clock::now());
  }
  // Errors that wait for a cause get no cause any more.
  output_.flush();
  // Before the last words: it may take kGoodbyePatience, and the leader waits for it.
  say_goodbye();
  output_.finish();  // the reason comes last
  const End end = how_it_ended();
  if (!end.reason.empty()) output_.say(end.reason, crew_.epoch(), /*is_error=*/end.code != 0);
  output_.finish();
  return end.code;
}

Agent::End Agent::how_it_ended() const {
  if (refusal_) return {kUserError, *refusal_};
  const Plan newest = line_->plan();
  // A plan to stop may have come after the last follow(); its exit code counts.
  const Plan& plan =
      newest.phase == Phase::kStop && newest.version > plan_.version ? newest : plan_;
  const bool took_part = plan.phase == Phase::kStop && plan.find(id_) != nullptr;
  const std::vector<WorkerReport> workers = crew_.reports();
  const WorkerReport* failed = took_part ? failure_of_stop(workers) : nullptr;
  // The leader may not have heard of it before this host says goodbye.
  if (plan.exit_code == 0 && failed != nullptr) {
    return {exit_code_after(*failed), describe(*failed, options_.host)};
  }
  return {plan.exit_code, plan.reason};
}

// Finds the leader, or begins to lead. Returns false when it was asked to stop meanwhile.
bool Agent::meet(std::optional<bool> leads, std::chrono::milliseconds timeout) {
  const auto cancellation = std::make_shared<comm::Cancellation>();
  // In a thread, because a meeting waits for minutes and signals must still be heeded.
  auto line = std::async(std::launch::async, [this, leads, timeout, cancellation] {
    return make_line(options_, leads, timeout, crew_.lease_renewal(), cancellation);
  });
  while (line.wait_for(kTick) != std::future_status::ready) {
    take_signals();
    take_notices();
    if (is_leaving_) cancellation->cancel(notice_);
  }
  try {
    line_ = line.get();
  } catch (const CommError&) {
    // The cancellation ends the meeting with a CommError as well. That is not a failure.
    if (!is_leaving_) throw;
    return false;
  }
  return true;
}

void Agent::wait() {
  std::vector<pollfd> ready = {{signals_.descriptor(), POLLIN, 0},
                               {line_->descriptor(), POLLIN, 0}};
  crew_.add_descriptors(ready);
  poll(ready.data(), ready.size(), static_cast<int>(kTick.count()));
  uint64_t count = 0;
  if ((ready[1].revents & POLLIN) != 0) {
    static_cast<void>(!read(line_->descriptor(), &count, sizeof(count)));
  }
}

// Asked to stop: alone it stops the job; among other hosts, this one leaves. Asked again, it does
// the same: schedulers and `timeout` send a signal twice, and workers get their time to save.
void Agent::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    // SIGCHLD only wakes the loop. The crew finds out itself who has ended.
    if (*signal == SIGCHLD) continue;
    if (NoticeWatch::is_notice(*signal)) {
      notices_.take_signal(*signal);
    } else {
      leave_after(concat("signal ", *signal, " (", strsignal(*signal), ")"));
    }
  }
}

void Agent::take_notices() {
  while (const auto notice = notices_.poll()) {
    leave_after(notice->text.empty() ? notice->source : concat(notice->source, ": ", notice->text));
  }
  const auto problem = notices_.take_problem();
  if (problem) output_.say(*problem, crew_.epoch(), /*is_error=*/true);
}

void Agent::leave_after(const std::string& notice) {
  notice_ = notice;
  is_leaving_ = true;
}

void Agent::follow(const Plan& plan) {
  // A fenced host has no part in any plan until it has joined anew.
  if (plan.version == plan_.version || is_fenced_) return;
  plan_ = plan;
  if (const RefusedHost* refused = plan.find_refused(id_)) {
    refusal_ = refused->reason;
    return crew_.kill();
  }
  // The plan decides besides the lease: after a pause of the whole process, the thread that sends
  // reports may have renewed the lease before this loop looks at it.
  if (plan.has_counted_out(id_) || has_work_of_before(plan)) {
    return fence("was counted out by the leader, which had not heard of it for too long");
  }
  probe_.answer(plan, id_);
  const bool is_new_epoch = plan.epoch != crew_.epoch();
  // While hosts gather, the epoch is still the one that has ended.
  if (plan.phase != Phase::kGather) crew_.set_epoch(plan.epoch);
  const PlannedHost* place = plan.find(id_);
  is_admitted_ |= place != nullptr;
  switch (plan.phase) {
    case Phase::kGather:
      // No worker runs between epochs, so there is nothing to save.
      if (is_leaving_ && !leader_) leave_job();
      break;
    case Phase::kRun:
      if (!is_new_epoch) break;
      // This epoch uses the port that was reported. The next one needs another.
      port_ = free_port();
      if (place != nullptr) crew_.begin_epoch(plan, *place);
      break;
    case Phase::kLeave: crew_.end_epoch(plan); break;
    case Phase::kStop:
      is_ending_ = true;
      crew_.stop(plan.is_graceful);
      break;
  }
  if (plan.is_spare(id_) && place == nullptr && !is_ending_ && !is_leaving_) crew_.warm_up();
}

// The workers of this host have saved, and the next epoch is without them.
void Agent::leave_job() {
  is_ending_ = true;
  crew_.stop(/*is_graceful=*/false);
}

HostReport Agent::make_report() const {
  return {.id = id_,
          .name = options_.host,
          .address = line_->own_address(),
          .port = port_,
          .node_rank = options_.node_rank,
          .num_workers = options_.num_workers,
          .epoch = crew_.epoch(),
          .is_leaving = is_leaving_,
          .notice = notice_,
          .is_ending = is_ending_,
          .keeps_workers = crew_.keeps_workers(),
          .program = is_admitted_ ? "" : options_.program,
          .link_address = probe_.address(),
          .link_port = probe_.port(),
          .links_known = links_.number,
          .unreached = links_.unreached,
          .workers = crew_.reports(),
          .observations = observations_};
}

void Agent::drill() {
  DrillTargets targets = crew_.targets();
  targets.leave = [this] { leave_after("injected"); };
  for (const std::string& line : drill_.perform(line_->plan(), targets, Clock::now())) {
    output_.say(line, crew_.epoch());
  }
}

void Agent::watch() {
  const Clock::time_point now = Clock::now();
  if (now < next_watch_) return;
  next_watch_ = now + kWatchInterval;
  observations_ = watch_.poll(crew_.at_work());
}

// A host that the leader cannot hear must not go on: the others may have begun without it.
void Agent::check_lease() {
  // Without the leader no epoch begins, so its own workers cannot run beside another epoch.
  if (leader_) return;
  const std::string problem = line_->problem();
  if (!is_fenced_ && (line_->has_lapsed() || !problem.empty())) {
    fence(concat("cannot reach the leader at ", options_.endpoint,
                 problem.empty() ? "" : ": " + problem));
  }
  // A new life begins only when nothing of the old one can write any more.
  if (!is_fenced_ || !crew_.is_idle()) return;
  if (!problem.empty() && !rejoin()) return;
  if (!line_->begin_anew()) return;
  // The leader has counted this host out, or will. It comes back as a new one.
  is_fenced_ = false;
  id_ = unique_name();
  is_admitted_ = false;
  plan_ = {};
  crew_.renew();
}

void Agent::fence(const std::string& reason) {
  // Set first: update() must not take the deaths that follow for failures.
  is_fenced_ = true;
  crew_.kill();
  output_.say(concat("run     ", options_.host, " ", reason, "; its workers are killed"),
              crew_.epoch(), /*is_error=*/true);
}

// Whether an epoch has begun without this host, whose workers are still in one before it.
bool Agent::has_work_of_before(const Plan& plan) const {
  return plan.epoch > crew_.epoch() && plan.find(id_) == nullptr && !crew_.at_work().empty();
}

// Returns false when it was asked to stop meanwhile. The job has lost steps then.
bool Agent::rejoin() {
  std::unique_ptr<Line> old = std::move(line_);
  if (meet(/*leads=*/false, kRejoinPatience)) {
    // Its threads may still wait for a network that is cut.
    // Joining them here would hold the loop for as long as TCP retries.
    std::thread([old = std::move(old)]() mutable { old.reset(); }).detach();
    return true;
  }
  line_ = std::move(old);
  is_ending_ = true;
  plan_.exit_code = kPeerLost;
  plan_.reason = concat("asked to stop while it waited for the leader: ", notice_);
  return false;
}

// Without its leader a job cannot go on, nor without the store by which it is led.
void Agent::lead() {
  // A job that is led no more must not look finished. It ends with the code of a lost peer.
  if (is_leaving_) leader_->stop(notice_, /*exit_code=*/0);
  const std::string problem = line_->problem();
  if (!problem.empty()) leader_->stop("the agents' store failed: " + problem, kPeerLost);
  leader_->lead();
}

void Agent::choose_folder() {
  if (const std::filesystem::path folder = crew_.folder(); !folder.empty() && !knows_run_) {
    knows_run_ = true;
    output_.set_folder(folder);  // unless the user chose another
    watch_.set_folder(folder / "recorder");
    drill_.set_folder(folder);
  }
  if (output_.has_folder()) return;
  // Before the first plan nobody knows the job's own name.
  if (output_.num_held_bytes() == 0 || plan_.job.empty()) return;
  const Clock::time_point now = Clock::now();
  if (!held_since_) held_since_ = now;
  if (!spoken_since_ && output_.holds_workers_output()) spoken_since_ = now;
  const bool is_late = now - *held_since_ > kSilentPatience ||
                       (spoken_since_ && now - *spoken_since_ > kFolderPatience);
  if (!is_late && output_.num_held_bytes() < kMaxHeldBytes && !is_ending_) return;
  const std::filesystem::path folder = std::filesystem::path("runs") / plan_.job;
  output_.set_folder(folder);
  output_.say(concat("run     logs in ", folder.string(), "; see them with: trireme logs ",
                     folder.string()),
              crew_.epoch());
}

bool Agent::is_over() const {
  if (!crew_.is_idle() || (!refusal_ && !is_ending_)) return false;
  return refusal_ || !leader_ || leader_->is_over();
}

// The leader learns that the workers have ended, and need not find out by waiting.
void Agent::say_goodbye() {
  if (leader_) return;
  // The leader is on this host and sees its own report.
  const BootClock::time_point now = BootClock::now();
  line_->report(make_report());
  while (line_->last_contact() < now && BootClock::now() < now + kGoodbyePatience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int run_agent(const AgentOptions& options, std::shared_ptr<AgentObserver> observer) {
  return Agent(options, std::move(observer)).run();
}

}  // namespace trireme::launch
