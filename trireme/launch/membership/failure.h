// What has failed in an epoch, as far as reports tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/membership/report.h"
#include "trireme/launch/watchdog/classify.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch::inline internal {

// Why an epoch cannot go on.
struct Failure {
  std::vector<Fault> faults{};  // not empty; the first is the cause
  std::string cause{};          // a word or two, as in Event
  int exit_code = 1;            // of the job, if no restart may follow
  // false: ranks have lost a peer, and none is known that failed by itself. It may come yet.
  bool is_cause_known = true;
};

// Workers that have failed or lost their peers. `reports`: of the epoch's hosts; `step`: the newest
// finished one.
std::optional<Failure> failure_of_workers(const std::vector<const HostReport*>& reports,
                                          int64_t step, const Policy& policy);

// A host of the epoch that is not heard of any more.
Failure failure_of_host(const std::string& host, int first_rank, int64_t step,
                        double silent_seconds);

}  // namespace trireme::launch::inline internal
