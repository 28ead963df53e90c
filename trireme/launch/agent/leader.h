// The leading agent's tasks beside its own workers: it decides, publishes plans and keeps the event
// log.
#pragma once

#include <string>

#include "trireme/launch/agent/agent.h"
#include "trireme/launch/agent/drill.h"
#include "trireme/launch/agent/job_output.h"
#include "trireme/launch/agent/line.h"
#include "trireme/launch/membership/coordinator.h"

namespace trireme::launch {

// Not thread safe. `line`, which leads, and `output` must outlive it.
class Leader {
 public:
  Leader(const AgentOptions& options, Line& line, JobOutput& output);

  // Looks at the reports and decides.
  void lead();
  // Ends the job with `exit_code`: workers save and end. Does nothing when it ends already.
  void stop(const std::string& reason, int exit_code);
  // Whether the job has ended on all hosts.
  bool is_over() const;

 private:
  void tell(const Event& event);

  Line& line_;
  JobOutput& output_;
  bool is_alone_;
  Coordinator coordinator_;
  DrillSchedule drill_;
};

}  // namespace trireme::launch
