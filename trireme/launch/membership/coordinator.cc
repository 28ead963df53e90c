// Length: one state machine, whose phases share its members and whose reasons stand beside its
// steps.
#include "trireme/launch/membership/coordinator.h"

#include <algorithm>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// decide() is called with everything that is known and changes only plan_ and events_. Nothing here
// waits, so a test can play any history. Every change of the plan goes with a new version, which is
// all that agents compare; a change without one is never seen. An epoch ends in two steps. kLeave
// waits until each worker has left or ended, and only then kGather begins the next: started
// earlier, a rank of the old epoch could still write beside the new one. A failure is answered late
// on purpose. A worker that lost its peers ends sooner than the news of the cause arrives, so
// kSettle passes before peers are blamed, and await_leavers() looks once more for an exit code that
// no restart mends. Hosts are counted out for good, because what they do after the leader has given
// them up must not touch a later epoch; they come back under new ids.

namespace {

// A worker that lost its peers waits this long for the cause to be known.
// Reports of all hosts come within a beat and a look, so the cause is known by then if there is
// one.
constexpr std::chrono::milliseconds kSettle{300};
// Hosts join an epoch that has run for this long, or has finished a step.
// An epoch that ends before its first step would only repeat the start.
constexpr std::chrono::seconds kJoinAfter{5};
constexpr std::chrono::milliseconds kLookInterval{500};
// Longer than agents take that are started together.
constexpr std::chrono::seconds kWaitUntold{3};

bool is_at_work(const WorkerReport& worker) { return worker.state == WorkerState::kRunning; }

std::vector<std::string> names_of_hosts(const std::vector<const SeenHost*>& hosts) {
  std::vector<std::string> names;
  for (const SeenHost* host : hosts) names.push_back(host->report.name);
  return names;
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Clock::time_point now)
    : options_(std::move(options)),
      budget_(options_.budget),
      since_(now),
      start_at_(now),
      next_look_(now) {
  plan_.job = options_.job;
}

std::vector<Event> Coordinator::take_events() { return std::exchange(events_, {}); }

void Coordinator::record(Event event) {
  event.time = std::chrono::system_clock::now();
  event.epoch = plan_.epoch;
  // An event without a step of its own belongs to the newest one that is finished.
  if (event.step < 0 && step_.value_or(0) > 0) event.step = *step_;
  events_.push_back(std::move(event));
}

void Coordinator::decide(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  // New hosts are known, and lost ones counted out, before any phase looks at them.
  welcome(hosts, now);
  tell_counted_out(hosts, now);
  refuse_taken_places(hosts, now);
  switch (plan_.phase) {
    case Phase::kGather: return gather(hosts, now);
    case Phase::kRun: return watch(hosts, now);
    case Phase::kLeave: return await_leavers(hosts, now);
    case Phase::kStop: return watch_end(hosts);
  }
}

// A worker that fails while the job ends well, for example because its last save fails.
void Coordinator::watch_end(const std::vector<SeenHost>& hosts) {
  for (const HostReport* report : reports_of_epoch(hosts)) {
    const WorkerReport* failed = failure_of_stop(report->workers);
    // The first failure is the cause of the job's end, and an exit code is set once.
    if (failed == nullptr || plan_.exit_code != 0) continue;
    plan_.exit_code = exit_code_after(*failed);
    plan_.reason = describe(*failed, report->name);
    ++plan_.version;
  }
}

void Coordinator::gather(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::vector<const SeenHost*> ready = candidates(hosts, now);
  // Hosts that will not take part have workers as well. They must have ended before ranks meet
  // again.
  const bool is_settled = std::ranges::all_of(hosts, [&](const SeenHost& host) {
    return !is_alive(host, now) || std::ranges::none_of(host.report.workers, is_at_work);
  });
  const auto count = static_cast<int>(ready.size());
  if (count < options_.min_hosts) {
    // There were enough hosts, but one has gone. The last call starts over.
    enough_since_.reset();
    if (now - since_ <= options_.join_timeout) return tell_of_waiting(count, now);
    const std::string waited =
        concat(static_cast<int64_t>(in_seconds(options_.join_timeout)), " s");
    return stop(kPeerLost,
                concat(count, " of ", options_.min_hosts, " hosts came within ", waited, " (",
                       joined(names_of_hosts(ready)),
                       "); start the agent on the others, or lower --nnodes"),
                /*is_graceful=*/true, now);
  }
  if (!enough_since_) enough_since_ = now;
  // Later epochs begin at once: a host that comes late joins by ending the epoch.
  // Only the first epoch waits for hosts that may still come.
  const bool is_first = plan_.epoch == 0 && count < options_.max_hosts;
  const bool is_called = !is_first || now - *enough_since_ >= options_.last_call;
  // Before any rank meets: ranks that cannot reach each other would fail again after their timeout.
  if (must_know_links_) {
    if (!know_links(ready, now)) return;
    return drop_unreached(ready, hosts, now);
  }
  // start_at_ is the budget's delay after a failure.
  if (is_settled && is_called && now >= start_at_) start_epoch(ready, now);
}

// Once in a while of waiting.
void Coordinator::tell_of_waiting(int num_hosts, Clock::time_point now) {
  if (now - since_ < kWaitUntold || told_of_waiting_ == since_) return;
  // Once for each time of waiting, which since_ stands for.
  told_of_waiting_ = since_;
  record({.kind = EventKind::kNotice,
          .cause = "waiting",
          .text = concat(num_hosts, " of ", options_.min_hosts, " hosts ",
                         num_hosts == 1 ? "is" : "are", " here; waiting for the others for up to ",
                         static_cast<int64_t>(in_seconds(options_.join_timeout)),
                         " s (--join-timeout)")});
}

void Coordinator::start_epoch(const std::vector<const SeenHost*>& hosts, Clock::time_point now) {
  plan_.hosts.clear();
  int next_rank = 0;
  for (const SeenHost* host : hosts) {
    plan_.hosts.push_back(
        // Ranks of one host are consecutive: neighbours share memory.
        {host->report.id, host->report.name, next_rank, host->report.num_workers});
    next_rank += host->report.num_workers;
  }
  ++plan_.epoch;
  // One host meets over shared memory and needs no store.
  plan_.store_host = hosts.size() > 1 ? hosts.front()->report.address : "";
  plan_.store_port = hosts.front()->report.port;
  lost_since_.reset();
  warnings_.clear();
  // A restart is measured from its failure, the first start from here.
  if (!waiting_since_) waiting_since_ = now;
  const std::string reason = plan_.reason;
  enter(Phase::kRun, reason, /*is_graceful=*/false, now);
  record({.kind = EventKind::kStart,
          .text = concat("epoch ", plan_.epoch, ": ", next_rank, " ranks on ",
                         joined(names_of_hosts(hosts)), reason.empty() ? "" : "; ", reason)});
}

void Coordinator::watch(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  // Before failures are looked for, so that a death is charged to the step that was reached.
  watch_progress(hosts, now);
  if (const auto failure = find_failure(hosts, now)) return fail(*failure, hosts, now);
  const std::vector<const HostReport*> reports = reports_of_epoch(hosts);
  const bool all_done =
      reports.size() == plan_.hosts.size() &&
      // An empty list is a host that has not started its workers, not one that is done.
      std::ranges::all_of(reports, [](const HostReport* report) {
        return !report->workers.empty() &&
               std::ranges::all_of(report->workers, [](const WorkerReport& worker) {
                 return worker.state == WorkerState::kDone || worker.state == WorkerState::kSpare;
               });
      });
  if (all_done) return stop(0, "", /*is_graceful=*/true, now);
  watch_membership(hosts, now);
  choose_spares(hosts, now);
  if (plan_.phase == Phase::kRun && now >= next_look_) {
    next_look_ = now + kLookInterval;
    watch_workers(hosts, now);
  }
}

// Reports of the hosts that have begun the epoch and are still in it.
std::vector<const HostReport*> Coordinator::reports_of_epoch(
    const std::vector<SeenHost>& hosts) const {
  std::vector<const HostReport*> reports;
  for (const PlannedHost& planned : plan_.hosts) {
    const SeenHost* host = find(hosts, planned.id);
    const bool is_current = host != nullptr && host->report.epoch == plan_.epoch;
    if (is_current) reports.push_back(&host->report);
  }
  return reports;
}

std::optional<Failure> Coordinator::find_failure(const std::vector<SeenHost>& hosts,
                                                 Clock::time_point now) {
  for (const PlannedHost& planned : plan_.hosts) {
    const SeenHost* host = find(hosts, planned.id);
    // Silence comes before exits: of a lost host nobody hears how its workers ended.
    if (host != nullptr && is_alive(*host, now)) continue;
    counted_out_.insert(planned.id);
    // A host that has joined anew under another id has killed its workers.
    const auto silence = host != nullptr ? now - host->seen : Clock::duration(options_.patience);
    return failure_of_host(planned.name, planned.first_rank, step_, in_seconds(silence));
  }
  // Workers of all hosts together, because the cause may be on another host than the first that
  // fails.
  auto failure = failure_of_workers(reports_of_epoch(hosts), step_, options_.policy);
  if (!failure || failure->is_cause_known) return failure;
  if (!lost_since_) lost_since_ = now;
  // The others may be about to say why. After that, the lost peers are the failure.
  return now - *lost_since_ < kSettle ? std::nullopt : failure;
}

void Coordinator::fail(const Failure& failure, const std::vector<SeenHost>& hosts,
                       Clock::time_point now) {
  const Fault& first = failure.faults.front();
  record({.kind = EventKind::kFailure,
          .host = first.host,
          .rank = first.rank,
          .cause = failure.cause,
          .text = first.evidence});
  // Before the budget decides: candidates() below must not count a host that is the cause.
  for (const Fault& fault : failure.faults) {
    if (fault.action == Action::kExclude) {
      excluded_.add(fault.host, fault.evidence, now + options_.policy.exclusion);
    }
  }
  const bool lacks_hosts =
      first.is_of_host && std::ssize(candidates(hosts, now)) < options_.min_hosts;
  // Who should bring another host now? The user can mend this one.
  if (lacks_hosts) return stop(failure.exit_code, first.evidence, /*is_graceful=*/false, now);
  const RestartDecision decision = budget_.decide(failure.faults, now);
  record(
      {.kind = EventKind::kDecision, .seconds = in_seconds(decision.delay), .text = decision.text});
  if (!decision.may_restart) {
    return stop(failure.exit_code, decision.text, /*is_graceful=*/false, now);
  }
  // Suspected now and asked in kGather, when no rank uses the links any more.
  must_know_links_ = suspects_links(failure, hosts);
  ++plan_.num_restarts;
  start_at_ = now + decision.delay;
  // From here and not from the new start: the delay is part of the recovery.
  waiting_since_ = now;
  enter(Phase::kLeave, first.evidence, /*is_graceful=*/false, now);
}

// Watches live workers by their flight recorders.
void Coordinator::watch_workers(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  std::vector<Observation> observations;
  for (const HostReport* report : reports_of_epoch(hosts)) {
    observations.insert(observations.end(), report->observations.begin(),
                        report->observations.end());
  }
  std::vector<Fault> faults = classify(observations, options_.policy);
  for (const Fault& fault : faults) {
    // Warnings come again with each look, and people need each once.
    const bool is_new = warnings_.insert(concat(name_of(fault.kind), fault.rank)).second;
    if (fault.action != Action::kWarn || !is_new) continue;
    record({.kind = EventKind::kNotice,
            .host = fault.host,
            .rank = fault.rank,
            .cause = name_of(fault.kind),
            .text = fault.evidence});
  }
  std::erase_if(faults, [](const Fault& fault) { return fault.action == Action::kWarn; });
  if (faults.empty()) return;
  const FaultKind kind = faults.front().kind;
  fail({.faults = std::move(faults),
        .cause = name_of(kind),
        .exit_code = kPeerLost,
        // A hang says who is late, and the network may be why.
        .is_cause_known = kind != FaultKind::kHang},
       hosts, now);
}

// Hosts that leave or join.
void Coordinator::watch_membership(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::vector<const SeenHost*> next = candidates(hosts, now);
  for (const PlannedHost& planned : plan_.hosts) {
    const HostReport& report = find(hosts, planned.id)->report;
    if (!report.is_leaving) continue;
    record({.kind = EventKind::kNotice, .host = report.name, .text = report.notice});
    const std::string reason = concat("host ", report.name, " leaves: ", report.notice);
    // Graceful: the ranks finish their step and save, so no step is lost.
    if (static_cast<int>(next.size()) >= options_.min_hosts) {
      waiting_since_ = now;
      return enter(Phase::kLeave, reason, /*is_graceful=*/true, now);
    }
    return stop(0, reason, /*is_graceful=*/true, now);
  }
  // A new host costs an epoch, so a run that is just starting is left alone for a moment.
  const bool has_settled = !waiting_since_ || now - since_ >= kJoinAfter;
  // Equal is not enough: a host beyond the most is a spare.
  if (!has_settled || next.size() <= plan_.hosts.size()) return;
  const std::string reason = concat("host ", next.back()->report.name, " joins");
  waiting_since_ = now;
  enter(Phase::kLeave, reason, /*is_graceful=*/true, now);
}

std::optional<int64_t> Coordinator::newest_step(const std::vector<SeenHost>& hosts) const {
  std::optional<int64_t> newest;
  for (const HostReport* report : reports_of_epoch(hosts)) {
    for (const WorkerReport& worker : report->workers) newest = std::max(newest, worker.step);
  }
  return newest;
}

// Notes the first step of an epoch. Only that tells where the ranks have gone on from.
void Coordinator::watch_progress(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::optional<int64_t> newest = newest_step(hosts);
  if (newest.value_or(0) == 0) {
    step_ = std::max(step_, newest);
    return;
  }
  if (waiting_since_) {
    // Ranks report at different times. The lowest first step is where the epoch went on from.
    int64_t first = *newest;
    for (const HostReport* report : reports_of_epoch(hosts)) {
      for (const WorkerReport& worker : report->workers) {
        if (worker.first_step > 0) first = std::min(first, worker.first_step);
      }
    }
    record({.kind = EventKind::kRecovery,
            .step = first,
            .seconds = in_seconds(now - *waiting_since_),
            .text = concat("step ", first, " is finished")});
    waiting_since_.reset();
  }
  step_ = newest;
}

void Coordinator::await_leavers(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  // Once a worker has died, nobody finishes the step, and waiting for it costs the whole grace.
  if (plan_.is_graceful && has_lost_worker(hosts, now)) {
    // The others cannot finish their step any more.
    plan_.is_graceful = false;
    ++plan_.version;
  }
  for (const PlannedHost& planned : plan_.hosts) {
    const SeenHost* host = find(hosts, planned.id);
    // A host may be lost while others leave. It would hold the job for ever.
    if (host == nullptr || !is_alive(*host, now)) {
      // Recorded once: this loop runs again with each look.
      if (!counted_out_.insert(planned.id).second) continue;
      record({.kind = EventKind::kFailure,
              .host = planned.name,
              .rank = planned.first_rank,
              .cause = "host lost",
              .text = concat("host ", planned.name, " is lost: no heartbeat")});
      plan_.reason = concat("host ", planned.name, " is lost");  // the others saw only that
      continue;
    }
    const HostReport& report = host->report;
    if (report.epoch != plan_.epoch || std::ranges::any_of(report.workers, is_at_work)) return;
  }
  // What was reported after the failure may be newer.
  step_ = std::max(step_, newest_step(hosts));
  // A worker that cannot be started again may end later than those that lost it.
  const auto late = failure_of_workers(reports_of_epoch(hosts), step_, options_.policy);
  // Asked to finish, workers end as they should.
  if (late && !plan_.is_graceful) {
    const Fault& first = late->faults.front();
    if (first.is_of_host)
      excluded_.add(first.host, first.evidence, now + options_.policy.exclusion);
    const bool lacks_hosts = std::ssize(candidates(hosts, now)) < options_.min_hosts;
    if (first.action == Action::kStop || (first.is_of_host && lacks_hosts)) {
      return stop(late->exit_code, first.evidence, /*is_graceful=*/false, now);
    }
  }
  // Goes on in the same call: the next report may be a beat away.
  enter(Phase::kGather, plan_.reason, /*is_graceful=*/false, now);
  gather(hosts, now);
}

bool Coordinator::has_lost_worker(const std::vector<SeenHost>& hosts, Clock::time_point now) const {
  return std::ranges::any_of(plan_.hosts, [&](const PlannedHost& planned) {
    const SeenHost* host = find(hosts, planned.id);
    return host == nullptr || !is_alive(*host, now) ||
           std::ranges::any_of(host->report.workers, [](const WorkerReport& worker) {
             return worker.state == WorkerState::kFailed;
           });
  });
}

void Coordinator::enter(Phase phase, const std::string& reason, bool is_graceful,
                        Clock::time_point now) {
  // A host that was left out may be back.
  must_know_links_ |= phase == Phase::kLeave && has_dropped_unreached_;
  plan_.phase = phase;
  plan_.reason = reason;
  plan_.is_graceful = is_graceful;
  since_ = now;
  ++plan_.version;
}

void Coordinator::stop(int exit_code, const std::string& reason, bool is_graceful,
                       Clock::time_point now) {
  plan_.exit_code = exit_code;
  enter(Phase::kStop, reason, is_graceful, now);
  record({.kind = EventKind::kEnd,
          .cause = exit_code == 0 ? "" : concat("exit code ", exit_code),
          .text = reason});
}

void Coordinator::request_stop(const std::string& reason, int exit_code, Clock::time_point now) {
  // The first stop is the one that counts.
  if (plan_.phase != Phase::kStop) stop(exit_code, reason, /*is_graceful=*/true, now);
}

void Coordinator::inject(const std::string& host, int rank, const std::string& text) {
  // Agents remember which numbers they have seen, so old entries only make plans longer.
  constexpr size_t kMaxPlanned = 16;
  plan_.injections.push_back({++num_injections_, host, text});
  if (plan_.injections.size() > kMaxPlanned) plan_.injections.erase(plan_.injections.begin());
  ++plan_.version;
  record({.kind = EventKind::kInject, .host = host, .rank = rank, .text = text});
}

bool Coordinator::is_over(const std::vector<SeenHost>& hosts, Clock::time_point now) const {
  const auto is_ended = [](const WorkerReport& worker) {
    return worker.state == WorkerState::kDone || worker.state == WorkerState::kFailed;
  };
  return plan_.phase == Phase::kStop && std::ranges::all_of(hosts, [&](const SeenHost& host) {
           const HostReport& report = host.report;
           // A host that says nothing any more must not hold the end.
           return !is_alive(host, now) || plan_.find_refused(report.id) != nullptr ||
                  (report.is_ending && std::ranges::all_of(report.workers, is_ended));
         });
}

}  // namespace trireme::launch
