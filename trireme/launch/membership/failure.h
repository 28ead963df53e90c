// Finds the failures of an epoch from the reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/membership/report.h"
#include "trireme/launch/watchdog/classify.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch {

// Why an epoch cannot go on.
struct Failure {
  std::vector<Fault> faults{};  // not empty; the first is the cause
  std::string cause{};          // a word or two, as in Event
  int exit_code = 1;            // of the job, if no restart may follow
  // false: ranks have lost a peer or wait, and none is known that failed by itself. It may come
  // yet; or hosts do not reach each other.
  bool is_cause_known = true;
};

// Workers that have failed or lost their peers. `reports`: of the epoch's hosts; `step`: the newest
// finished one, if the program says it.
std::optional<Failure> failure_of_workers(const std::vector<const HostReport*>& reports,
                                          std::optional<int64_t> step, const Policy& policy);

// For a job that was asked to stop: a worker that has failed, or was killed before it had saved.
// Null: none. A worker that dies of SIGTERM, the request itself, does not handle it and saves
// nothing.
const WorkerReport* failure_of_stop(const std::vector<WorkerReport>& workers);
// The job's exit code after that worker's failure.
int exit_code_after(const WorkerReport& cause);

// A host of the epoch that is not heard of any more.
Failure failure_of_host(const std::string& host, int first_rank, std::optional<int64_t> step,
                        double silent_seconds);

}  // namespace trireme::launch
