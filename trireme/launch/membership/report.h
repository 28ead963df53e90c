// An agent's report to the leader about its host and workers, and what the reports say together:
// whether hosts reach each other, and whether they run the same program. The leader hears from
// every host, which says nothing of the links between the others, so agents look at their links
// when the leader asks. Each report is complete and replaces all earlier ones, so a lost report
// does no harm.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/watchdog/observation.h"

namespace trireme::launch {

struct HostReport;

// A host to be reached, in the leader's question.
struct LinkedHost {
  std::string id;
  std::string address;  // numeric
  int port = 0;
};

// A host that was not reached, in an agent's answer.
struct Unreached {
  std::string id;
  std::string reason;  // "no answer within 2 s"
};

struct DeadLink {
  const HostReport* from = nullptr;
  const HostReport* to = nullptr;
  std::string reason;
};

// "b does not reach c at 10.0.0.3 (no answer within 2 s)"
std::string describe(const DeadLink& link);

// The dead links among these hosts, from their answers to question `number`. Each pair occurs once.
std::vector<DeadLink> dead_links(const std::vector<const HostReport*>& hosts, int64_t number);

// The hosts to drop so that no dead link is left: repeatedly the one with the most dead links, and
// the last of several. hosts: in the order of ranks
std::vector<const HostReport*> hosts_to_drop(const std::vector<const HostReport*>& hosts,
                                             std::vector<DeadLink> links);

using Clock = std::chrono::steady_clock;

enum class WorkerState {
  kRunning,  // of the report's epoch, or on its way there
  kLeft,     // its groups are gone; waits for the next epoch
  kSpare,    // the layout had no place for it in this epoch; waits
  kDone,     // ended with code 0
  kFailed,   // ended otherwise
};

struct WorkerReport {
  WorkerState state = WorkerState::kRunning;
  int rank = -1;                  // in the report's epoch
  std::optional<int64_t> step{};  // finished steps; none: the program does not say
  int64_t first_step = 0;         // the first one that it has finished in this epoch; 0: none
  int code = 0;                   // of a failed one; -1 when a signal killed it
  int signal = 0;
  std::string message{};  // why it ended or left, one line
};

struct HostReport {
  std::string id{};            // random, another one each time the host joins
  std::string name{};          // for people
  std::string address{};       // where ranks of other hosts reach this one
  int port = 0;                // free there, for rank 0's store in the next epoch
  int node_rank = -1;          // place among the hosts; -1: after those that joined before
  int num_workers = 1;         // that it runs
  int epoch = 0;               // of the newest plan that it has carried out; 0: none
  bool is_leaving = false;     // had a notice; goes as soon as its workers have saved
  std::string notice{};        // that notice
  bool is_ending = false;      // has seen the plan to stop
  bool keeps_workers = false;  // they speak the link, and can be started before they have a rank
  std::string program{};       // what all hosts must have alike; "" after its first plan
  int64_t beat = 0;            // counts reports
  int64_t clock_us = 0;        // the host's clock when this report was made
  std::string link_address{};  // where this agent can be reached by other hosts' agents, and the
  int link_port = 0;           // port; 0: nowhere
  int64_t links_known = 0;     // the newest question of the leader that `unreached` answers
  std::vector<Unreached> unreached{};
  std::vector<WorkerReport> workers{};
  std::vector<Observation> observations{};  // of those that run
};

std::string to_json(const HostReport& report);
// Throws: ConfigError when `text` is not a report; `source` names it in the message
HostReport parse_report(std::string_view text, const std::string& source);

// "rank 1 on b was killed by signal 6 (Aborted)"; without `host` "rank 1 was killed ...".
std::string describe(const WorkerReport& worker, const std::string& host);

// The text that must be the same on all hosts of a job: lines "key = value" for the version, the
// command and each key of its config.

// The lines of a TOML text as "section.key = value". Good enough to compare two files; a value over
// several lines is several lines.
std::string config_lines(std::string_view toml);

// Names what differs: "train.steps is 300, and 200 on the leader; ..."; "" when nothing does.
// theirs: the host's; ours: the leader's.
std::string program_difference(std::string_view theirs, std::string_view ours);

}  // namespace trireme::launch
