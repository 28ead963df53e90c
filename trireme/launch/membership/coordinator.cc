#include "trireme/launch/membership/coordinator.h"

#include <algorithm>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/launch/process/exit_codes.h"

namespace trireme::launch::inline internal {
namespace {

// A worker that lost its peers waits this long for the cause to be known.
constexpr std::chrono::milliseconds kSettle{300};
// Hosts join an epoch that has run for this long, or has finished a step.
constexpr std::chrono::seconds kJoinAfter{5};
constexpr std::chrono::milliseconds kLookInterval{500};

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
  if (event.step < 0 && step_ > 0) event.step = step_;
  events_.push_back(std::move(event));
}

void Coordinator::decide(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  welcome(hosts, now);
  switch (plan_.phase) {
    case Phase::kGather: return gather(hosts, now);
    case Phase::kRun: return watch(hosts, now);
    case Phase::kLeave: return await_leavers(hosts, now);
    case Phase::kStop: return watch_end(hosts);
  }
}

// A worker that fails while the job ends well, for example because its last save fails.
void Coordinator::watch_end(const std::vector<SeenHost>& hosts) {
  for (const SeenHost& host : hosts) {
    for (const WorkerReport& worker : host.report.workers) {
      const bool has_failed = worker.state == WorkerState::kFailed && worker.code > 0;
      if (!has_failed || plan_.exit_code != 0) continue;
      plan_.exit_code = worker.code;
      plan_.reason = describe(worker, host.report.name);
      ++plan_.version;
    }
  }
}

void Coordinator::gather(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::vector<const SeenHost*> ready = candidates(hosts, now);
  const bool is_settled = std::ranges::all_of(hosts, [&](const SeenHost& host) {
    return !is_alive(host, now) || std::ranges::none_of(host.report.workers, is_at_work);
  });
  const auto count = static_cast<int>(ready.size());
  if (count < options_.min_hosts) {
    enough_since_.reset();
    if (now - since_ <= options_.join_timeout) return;
    const std::string waited =
        concat(static_cast<int64_t>(in_seconds(options_.join_timeout)), " s");
    return stop(kPeerLost,
                concat(count, " of ", options_.min_hosts, " hosts came within ", waited, " (",
                       joined(names_of_hosts(ready)),
                       "); start the agent on the others, or lower --nnodes"),
                /*is_graceful=*/true, now);
  }
  if (!enough_since_) enough_since_ = now;
  // Only the first epoch waits for hosts that may still come.
  const bool is_first = plan_.epoch == 0 && count < options_.max_hosts;
  const bool is_called = !is_first || now - *enough_since_ >= options_.last_call;
  if (is_settled && is_called && now >= start_at_) start_epoch(ready, now);
}

void Coordinator::start_epoch(const std::vector<const SeenHost*>& hosts, Clock::time_point now) {
  plan_.hosts.clear();
  int next_rank = 0;
  for (const SeenHost* host : hosts) {
    plan_.hosts.push_back(
        {host->report.id, host->report.name, next_rank, host->report.num_workers});
    next_rank += host->report.num_workers;
  }
  ++plan_.epoch;
  plan_.store_host = hosts.size() > 1 ? hosts.front()->report.address : "";
  plan_.store_port = hosts.front()->report.port;
  lost_since_.reset();
  warnings_.clear();
  if (!waiting_since_) waiting_since_ = now;
  const std::string reason = plan_.reason;
  enter(Phase::kRun, reason, /*is_graceful=*/false, now);
  record({.kind = EventKind::kStart,
          .text = concat("epoch ", plan_.epoch, ": ", next_rank, " ranks on ",
                         joined(names_of_hosts(hosts)), reason.empty() ? "" : "; ", reason)});
}

void Coordinator::watch(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  watch_progress(hosts, now);
  if (const auto failure = find_failure(hosts, now)) return fail(*failure, now);
  const std::vector<const HostReport*> reports = reports_of_epoch(hosts);
  const bool all_done =
      reports.size() == plan_.hosts.size() &&
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

// Of hosts that have begun the epoch and are still in it.
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
    if (host != nullptr && is_alive(*host, now)) continue;
    counted_out_.insert(planned.id);
    // A host that has joined anew under another id has killed its workers.
    const auto silence = host != nullptr ? now - host->seen : Clock::duration(options_.patience);
    return failure_of_host(planned.name, planned.first_rank, step_, in_seconds(silence));
  }
  auto failure = failure_of_workers(reports_of_epoch(hosts), step_, options_.policy);
  if (!failure || failure->is_cause_known) return failure;
  if (!lost_since_) lost_since_ = now;
  return now - *lost_since_ < kSettle ? std::nullopt : failure;
}

void Coordinator::fail(const Failure& failure, Clock::time_point now) {
  const Fault& first = failure.faults.front();
  record({.kind = EventKind::kFailure,
          .host = first.host,
          .rank = first.rank,
          .cause = failure.cause,
          .text = first.evidence});
  for (const Fault& fault : failure.faults) {
    if (fault.action == Action::kExclude) {
      excluded_.add(fault.host, fault.evidence, now + options_.policy.exclusion);
    }
  }
  const RestartDecision decision = budget_.decide(failure.faults, now);
  record(
      {.kind = EventKind::kDecision, .seconds = in_seconds(decision.delay), .text = decision.text});
  if (!decision.may_restart) {
    return stop(failure.exit_code, decision.text, /*is_graceful=*/false, now);
  }
  ++plan_.num_restarts;
  start_at_ = now + decision.delay;
  waiting_since_ = now;
  enter(Phase::kLeave, first.evidence, /*is_graceful=*/false, now);
}

// What flight recorders show of workers that live.
void Coordinator::watch_workers(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  std::vector<Observation> observations;
  for (const HostReport* report : reports_of_epoch(hosts)) {
    observations.insert(observations.end(), report->observations.begin(),
                        report->observations.end());
  }
  std::vector<Fault> faults = classify(observations, options_.policy);
  for (const Fault& fault : faults) {
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
  const std::string cause = name_of(faults.front().kind);
  fail({.faults = std::move(faults), .cause = cause, .exit_code = kPeerLost}, now);
}

// Hosts that leave or join.
void Coordinator::watch_membership(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::vector<const SeenHost*> next = candidates(hosts, now);
  for (const PlannedHost& planned : plan_.hosts) {
    const HostReport& report = find(hosts, planned.id)->report;
    if (!report.is_leaving) continue;
    record({.kind = EventKind::kNotice, .host = report.name, .text = report.notice});
    const std::string reason = concat("host ", report.name, " leaves: ", report.notice);
    if (static_cast<int>(next.size()) >= options_.min_hosts) {
      waiting_since_ = now;
      return enter(Phase::kLeave, reason, /*is_graceful=*/true, now);
    }
    return stop(0, reason, /*is_graceful=*/true, now);
  }
  const bool has_settled = !waiting_since_ || now - since_ >= kJoinAfter;
  if (!has_settled || next.size() <= plan_.hosts.size()) return;
  const std::string reason = concat("host ", next.back()->report.name, " joins");
  waiting_since_ = now;
  enter(Phase::kLeave, reason, /*is_graceful=*/true, now);
}

int64_t Coordinator::newest_step(const std::vector<SeenHost>& hosts) const {
  int64_t newest = 0;
  for (const HostReport* report : reports_of_epoch(hosts)) {
    for (const WorkerReport& worker : report->workers) newest = std::max(newest, worker.step);
  }
  return newest;
}

// Notes the first step of an epoch. Only that tells where the ranks have gone on from.
void Coordinator::watch_progress(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const int64_t newest = newest_step(hosts);
  if (newest == 0) return;
  if (waiting_since_) {
    int64_t first = newest;
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
  if (plan_.is_graceful && has_lost_worker(hosts, now)) {
    // The others cannot finish their step any more.
    plan_.is_graceful = false;
    ++plan_.version;
  }
  for (const PlannedHost& planned : plan_.hosts) {
    const SeenHost* host = find(hosts, planned.id);
    if (host == nullptr || !is_alive(*host, now)) {
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
  step_ = std::max(step_, newest_step(hosts));
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

void Coordinator::request_stop(const std::string& reason, Clock::time_point now) {
  if (plan_.phase != Phase::kStop) stop(0, reason, /*is_graceful=*/true, now);
}

void Coordinator::inject(const std::string& host, int rank, const std::string& text) {
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
           return !is_alive(host, now) || plan_.find_refused(report.id) != nullptr ||
                  (report.is_ending && std::ranges::all_of(report.workers, is_ended));
         });
}

}  // namespace trireme::launch::inline internal
