#include "trireme/launch/membership/failure.h"

#include <algorithm>
#include <csignal>

#include "trireme/base/error.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {
namespace {

struct Ended {
  std::vector<WorkerExit> exits;
  std::vector<Observation> observations;
  const WorkerReport* cause = nullptr;  // the first that did not end because of a peer
  std::string left{};                   // what one says that lost its peers
};

Ended ended_workers(const std::vector<const HostReport*>& reports) {
  Ended ended;
  for (const HostReport* report : reports) {
    ended.observations.insert(ended.observations.end(), report->observations.begin(),
                              report->observations.end());
    for (const WorkerReport& worker : report->workers) {
      if (worker.state == WorkerState::kLeft && ended.left.empty()) {
        ended.left = describe(worker, report->name);
      }
      if (worker.state != WorkerState::kFailed) continue;
      ended.exits.push_back({.rank = worker.rank,
                             .host = report->name,
                             .code = worker.code,
                             .signal = worker.signal,
                             .message = worker.message,
                             .step = worker.step});
      // Ranks of ours end with this code when a peer is lost. It says that somebody else is the
      // cause.
      if (worker.code == kPeerLost) {
        if (ended.left.empty()) ended.left = describe(worker, report->name);
      } else if (ended.cause == nullptr) {
        ended.cause = &worker;
      }
    }
  }
  return ended;
}

}  // namespace

int exit_code_after(const WorkerReport& cause) {
  // A command that cannot be started will not be there next time either.
  if (cause.code == kNotFound) return kUserError;
  // A signal has no code of its own. The job can be started again, which code 3 says.
  return cause.signal != 0 ? kPeerLost : cause.code;
}

const WorkerReport* failure_of_stop(const std::vector<WorkerReport>& workers) {
  const auto failed = std::ranges::find_if(workers, [](const WorkerReport& worker) {
    // SIGTERM is the request itself, by which a program without a handler ends.
    return worker.state == WorkerState::kFailed && worker.signal != SIGTERM;
  });
  return failed == workers.end() ? nullptr : &*failed;
}

std::optional<Failure> failure_of_workers(const std::vector<const HostReport*>& reports,
                                          std::optional<int64_t> step, const Policy& policy) {
  const Ended ended = ended_workers(reports);
  if (ended.exits.empty() && ended.left.empty()) return std::nullopt;
  Failure failure{.faults = classify_exits(ended.exits, ended.observations, policy),
                  .cause = "peers lost",
                  .exit_code = kPeerLost,
                  .is_cause_known = ended.cause != nullptr};
  if (ended.cause != nullptr) {
    failure.cause = ended.cause->signal != 0 ? "killed" : concat("exit code ", ended.cause->code);
    failure.exit_code = exit_code_after(*ended.cause);
    if (ended.cause->code == kNotFound) {
      // classify_exits() does not know this code.
      for (Fault& fault : failure.faults) fault.action = Action::kStop;
    }
  }
  // Only lost peers: a fault is needed that the budget can count.
  if (failure.faults.empty()) {
    failure.faults = {{.step = step, .evidence = ended.left, .action = policy.crash}};
  }
  return failure;
}

Failure failure_of_host(const std::string& host, int first_rank, std::optional<int64_t> step,
                        double silent_seconds) {
  return {.faults = {{.kind = FaultKind::kCrash,
                      .rank = first_rank,
                      .host = host,
                      .step = step,
                      .evidence = concat("host ", host, " is lost: no heartbeat for ",
                                         static_cast<int64_t>(silent_seconds), " s"),
                      .action = Action::kRestart}},
          .cause = "host lost",
          .exit_code = kPeerLost};
}

}  // namespace trireme::launch
