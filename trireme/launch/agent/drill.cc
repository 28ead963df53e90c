#include "trireme/launch/agent/drill.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch {

std::vector<Injection> DrillSchedule::due(const Plan& plan, const std::vector<SeenHost>& hosts,
                                          // Most jobs have no drill. They must not pay for looking
                                          // at all reports.
                                          Clock::time_point now) {
  if (injector_.num_left() == 0) return {};
  RunMoment moment{
      .since_start = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_),
      .is_recovering = plan.epoch > 0 && plan.phase != Phase::kRun};
  for (const SeenHost& host : hosts) {
    const HostReport& report = host.report;
    // A host in another epoch reports ranks that are not those of the plan.
    if (plan.find(report.id) == nullptr || report.epoch != plan.epoch) continue;
    moment.agents.push_back(report.name);
    for (const WorkerReport& worker : report.workers) {
      if (worker.state != WorkerState::kRunning) continue;
      if (worker.step) moment.steps[worker.rank] = *worker.step;
      moment.hosts[worker.rank] = report.name;
    }
    for (const Observation& rank : report.observations) {
      // Between steps it evaluates or saves.
      moment.is_saving |= rank.has_ring && rank.step > 0 && !rank.is_in_step;
    }
  }
  return injector_.due(moment);
}

std::vector<std::string> DrillPerformer::perform(const Plan& plan, const DrillTargets& targets,
                                                 Clock::time_point now) {
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::vector<std::string> lines;
  for (const PlannedInjection& planned : plan.injections) {
    // Plans are complete, so a newer plan repeats injections that this host has done already.
    if (planned.number <= num_seen_) continue;
    num_seen_ = planned.number;
    // Counted as seen above also when it is another host's: numbers only grow.
    if (planned.host != host_) continue;
    for (const Injection& injection : parse_injections(planned.text)) {
      lines.push_back(concat("inject  ", begin(injection, targets, time)));
    }
  }
  if (!performer_) return lines;
  for (const InjectionReport& report : performer_->end_due(time)) {
    lines.push_back(concat("inject  ", report.text));
  }
  return lines;
}

std::string DrillPerformer::begin(const Injection& injection, const DrillTargets& targets,
                                  std::chrono::milliseconds now) {
  switch (injection.fault) {
    case InjectedFault::kLeave: targets.leave(); return concat("host ", host_, " leaves");
    case InjectedFault::kJoin:
      return "a host joins when its agent is started there: trireme run on it";
    case InjectedFault::kExit: targets.end_with(injection.rank, injection.code); break;
    default: break;
  }
  std::vector<int64_t> process_ids;
  if (injection.target == Target::kRank) process_ids = targets.process_ids(injection.rank);
  if (injection.target == Target::kWorkers) process_ids = targets.process_ids(-1);
  if (injection.target == Target::kAgent) process_ids = {::getpid()};
  // Made late, because the folder is known only after a worker has said it.
  if (!performer_) performer_.emplace(PerformerOptions{.folder = folder_});
  return performer_->begin(injection, process_ids, now).text;
}

}  // namespace trireme::launch
