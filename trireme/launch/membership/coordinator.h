// The leader's decisions: who runs which ranks, from what agents report. Knows no network and no
// process, so every history of failures can be tested with made-up reports and times.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/launch/journal/event.h"
#include "trireme/launch/membership/failure.h"
#include "trireme/launch/membership/rank_plan.h"
#include "trireme/launch/membership/report.h"
#include "trireme/launch/watchdog/budget.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch {

struct CoordinatorOptions {
  int min_hosts = 1;
  int max_hosts = 1;
  int num_spares = 0;     // hosts above max_hosts that keep their workers started
  std::string job{};      // Plan::job
  std::string program{};  // HostReport::program that hosts must have
  // How long to wait for min_hosts, and then for more of them before the first epoch.
  std::chrono::milliseconds join_timeout{300'000};
  std::chrono::milliseconds last_call{3000};
  // A host that has been silent for this long is excluded. Its agent kills its workers earlier
  // (agent.h), unless it was paused with them. If the host reports again, the plan tells it so.
  std::chrono::milliseconds patience{4000};
  BudgetOptions budget{};
  Policy policy{};
  // How long agents may take to find out whom they reach.
  std::chrono::milliseconds link_patience{5000};
};

// The newest report of a host, and when it came.
struct SeenHost {
  HostReport report{};
  Clock::time_point seen{};
};

// Not thread safe.
//
//   gather   until enough hosts are there and no worker of the epoch before still runs. After a
//            failure without a known cause, agents first probe whom they reach; of two hosts
//            that do not reach each other, one is left out
//   run      until a worker fails, a host is lost or leaves, or a new one joins; or all are done
//   leave    until every worker of the epoch has left it or has ended; then gather
//   stop     all done, a failure that a restart does not mend, or too few hosts
class Coordinator {
 public:
  Coordinator(CoordinatorOptions options, Clock::time_point now);

  // hosts: all that ever reported, in the order in which they joined.
  void decide(const std::vector<SeenHost>& hosts, Clock::time_point now);
  // Ends the job with `exit_code`: workers save and end.
  void request_stop(const std::string& reason, int exit_code, Clock::time_point now);

  // Tells a host to inject a fault.
  void inject(const std::string& host, int rank, const std::string& text);

  const Plan& plan() const { return plan_; }
  // Whether every host has seen the plan to stop, and has no worker any more.
  bool is_over(const std::vector<SeenHost>& hosts, Clock::time_point now) const;
  // Returns the events since the last call, for the journal.
  std::vector<Event> take_events();

 private:
  bool is_alive(const SeenHost& host, Clock::time_point now) const;
  bool may_take_part(const SeenHost& host, Clock::time_point now) const;
  std::vector<const SeenHost*> ordered(const std::vector<SeenHost>& hosts,
                                       Clock::time_point now) const;
  std::vector<const SeenHost*> candidates(const std::vector<SeenHost>& hosts,
                                          Clock::time_point now) const;
  const SeenHost* find(const std::vector<SeenHost>& hosts, const std::string& id) const;
  void welcome(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void tell_counted_out(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void refuse_taken_places(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void check_clock(const HostReport& host);
  void check_name(const HostReport& host, const std::vector<SeenHost>& hosts,
                  Clock::time_point now);
  void refuse(const HostReport& host, const std::string& reason);
  void gather(const std::vector<SeenHost>& hosts, Clock::time_point now);
  bool suspects_links(const Failure& failure, const std::vector<SeenHost>& hosts) const;
  void ask_for_links(const std::vector<const SeenHost*>& hosts, Clock::time_point now);
  bool know_links(const std::vector<const SeenHost*>& hosts, Clock::time_point now);
  void drop_unreached(const std::vector<const SeenHost*>& hosts, const std::vector<SeenHost>& all,
                      Clock::time_point now);
  void tell_of_waiting(int num_hosts, Clock::time_point now);
  void start_epoch(const std::vector<const SeenHost*>& hosts, Clock::time_point now);
  void watch(const std::vector<SeenHost>& hosts, Clock::time_point now);
  std::vector<const HostReport*> reports_of_epoch(const std::vector<SeenHost>& hosts) const;
  std::optional<Failure> find_failure(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void fail(const Failure& failure, const std::vector<SeenHost>& hosts, Clock::time_point now);
  void watch_workers(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void watch_membership(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void choose_spares(const std::vector<SeenHost>& hosts, Clock::time_point now);
  std::optional<int64_t> newest_step(const std::vector<SeenHost>& hosts) const;
  void watch_progress(const std::vector<SeenHost>& hosts, Clock::time_point now);
  void watch_end(const std::vector<SeenHost>& hosts);
  void await_leavers(const std::vector<SeenHost>& hosts, Clock::time_point now);
  bool has_lost_worker(const std::vector<SeenHost>& hosts, Clock::time_point now) const;
  void enter(Phase phase, const std::string& reason, bool is_graceful, Clock::time_point now);
  void stop(int exit_code, const std::string& reason, bool is_graceful, Clock::time_point now);
  void record(Event event);

  CoordinatorOptions options_;
  Plan plan_;
  Budget budget_;
  ExcludedHosts excluded_;
  Clock::time_point since_;                           // of the phase
  Clock::time_point start_at_;                        // no epoch before it: back-off
  Clock::time_point next_look_;                       // at the workers' observations
  std::map<std::string, Clock::time_point> known_;    // ids of hosts that joined, and when
  std::set<std::string> counted_out_;                 // ids that never take part again
  std::set<std::string> warnings_;                    // told in this epoch
  std::optional<Clock::time_point> enough_since_;     // hosts for the first epoch
  std::optional<Clock::time_point> lost_since_;       // workers that lost peers, cause unknown
  std::optional<Clock::time_point> waiting_since_;    // for the epoch's first finished step
  std::optional<Clock::time_point> told_of_waiting_;  // the phase that has been reported
  bool must_know_links_ = false;                      // before the next epoch
  bool has_dropped_unreached_ = false;
  std::optional<Clock::time_point> links_asked_at_;
  int64_t num_injections_ = 0;
  std::optional<int64_t> step_;  // the newest that a worker of the epoch has finished, if known
  std::vector<Event> events_;
};

}  // namespace trireme::launch
