// The agent of one host: runs its workers as the leader plans, and reports their state to it.
// docs/guide/run.md describes a job's life.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/launch/inject/injection.h"
#include "trireme/launch/output/output.h"
#include "trireme/launch/process/child.h"
#include "trireme/launch/watchdog/budget.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch {

struct AgentOptions {
  std::vector<std::string> command{};  // program and arguments of every worker
  Environment environment{};           // of every worker
  int num_workers = 1;                 // on this host
  int min_hosts = 1;
  int max_hosts = 1;
  int num_spares = 0;           // hosts above max_hosts that keep their workers started
  std::string endpoint{};       // "HOST:PORT", where agents meet; "": one host
  std::string listen{};         // where the leader listens instead, see MeetingOptions
  std::string job = "trireme";  // the same on all hosts
  int node_rank = -1;           // place among the hosts; 0 leads. -1: who has the endpoint leads
  std::string host{};           // this host's name, for people
  std::string program{};        // what must be the same on all hosts (membership/report.h)
  // Folder of logs and events; "": the one that workers name, or else runs/JOB.
  std::filesystem::path folder{};
  bool binds_cores = true;
  std::chrono::milliseconds join_timeout{300'000};
  std::chrono::milliseconds last_call{3000};
  // An agent kills its workers when the leader has not answered for this long. The leader counts it
  // out a second later.
  std::chrono::milliseconds lease{3000};
  std::chrono::milliseconds grace{5000};  // for workers to leave an epoch, before SIGKILL
  // Asks whether this host will be taken away (jobs/notice_watch.h); "": nothing asks.
  std::string notice_command{};
  std::chrono::milliseconds notice_interval{5000};
  BudgetOptions budget{};
  Policy policy{};
  std::vector<Injection> injections{};  // of the leader: faults for a drill
  uint64_t injection_seed = 1;
};

// Runs the job to its end. Returns its exit code: 0 done, 3 lost too much, else that of the worker
// which a restart would not mend. Writes the last error to `observer`.
// Throws: ConfigError, CommError when the agents cannot meet; Error when no process can be made
int run_agent(const AgentOptions& options, std::shared_ptr<AgentObserver> observer);

}  // namespace trireme::launch
