// The coordinator's view of hosts: who is there, who may take part, who is new.
#include <algorithm>
#include <chrono>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/launch/membership/coordinator.h"
#include "trireme/launch/membership/report.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {
namespace {

constexpr std::chrono::seconds kClockTolerance{2};

}  // namespace

bool Coordinator::is_alive(const SeenHost& host, Clock::time_point now) const {
  // counted_out_ and not the time alone: a host that is heard again stays out.
  return !counted_out_.contains(host.report.id) && now - host.seen <= options_.patience;
}

bool Coordinator::may_take_part(const SeenHost& host, Clock::time_point now) const {
  return is_alive(host, now) && plan_.find_refused(host.report.id) == nullptr &&
         !host.report.is_leaving && !excluded_.contains(host.report.name, now);
}

const SeenHost* Coordinator::find(const std::vector<SeenHost>& hosts, const std::string& id) const {
  const auto found =
      std::ranges::find_if(hosts, [&](const SeenHost& host) { return host.report.id == id; });
  return found == hosts.end() ? nullptr : &*found;
}

// All hosts that may take part, in the order of ranks: hosts of the last epoch stay in theirs, new
// ones come after them by node rank, then in the order in which they joined.
std::vector<const SeenHost*> Coordinator::ordered(const std::vector<SeenHost>& hosts,
                                                  Clock::time_point now) const {
  std::vector<const SeenHost*> found;
  for (const PlannedHost& planned : plan_.hosts) {
    // Old hosts keep their order, so that ranks move as little as possible.
    const SeenHost* host = find(hosts, planned.id);
    if (host != nullptr && may_take_part(*host, now)) found.push_back(host);
  }
  const auto num_old = static_cast<std::ptrdiff_t>(found.size());
  for (const SeenHost& host : hosts) {
    if (may_take_part(host, now) && plan_.find(host.report.id) == nullptr) found.push_back(&host);
  }
  // Stable: without node ranks, the order of joining decides.
  std::stable_sort(found.begin() + num_old, found.end(), [](const auto* a, const auto* b) {
    // Compares as unsigned, so that hosts without a place come last.
    return static_cast<unsigned>(a->report.node_rank) < static_cast<unsigned>(b->report.node_rank);
  });
  return found;
}

std::vector<const SeenHost*> Coordinator::candidates(const std::vector<SeenHost>& hosts,
                                                     Clock::time_point now) const {
  std::vector<const SeenHost*> found = ordered(hosts, now);
  if (static_cast<int>(found.size()) > options_.max_hosts) found.resize(options_.max_hosts);
  return found;
}

// Programs that do not speak the link would begin to work if they were started without a rank.
void Coordinator::choose_spares(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  const std::vector<const HostReport*> reports = reports_of_epoch(hosts);
  const bool can_wait =
      // Another program would begin to train without a rank.
      std::ranges::any_of(reports, [](const HostReport* report) { return report->keeps_workers; });
  if (options_.num_spares == 0 || !can_wait) return;
  std::vector<std::string> spares;
  for (const SeenHost* host : ordered(hosts, now)) {
    const bool is_free = plan_.find(host->report.id) == nullptr;
    const bool has_room = static_cast<int>(spares.size()) < options_.num_spares;
    if (is_free && has_room) spares.push_back(host->report.id);
  }
  if (spares == plan_.spares) return;
  plan_.spares = std::move(spares);
  ++plan_.version;
}

// Ranks of ours say whether they have lost a peer. Other programs just fail.
bool Coordinator::suspects_links(const Failure& failure, const std::vector<SeenHost>& hosts) const {
  if (plan_.hosts.size() < 2) return false;
  // A hang, or ranks that lost each other with no cause: the links may be it.
  if (!failure.is_cause_known) return true;
  const std::vector<const HostReport*> reports = reports_of_epoch(hosts);
  // Programs of others end with any code when a peer is unreachable.
  return failure.faults.front().kind == FaultKind::kCrash && failure.cause.starts_with("exit") &&
         std::ranges::none_of(reports, [](const auto* report) { return report->keeps_workers; });
}

void Coordinator::ask_for_links(const std::vector<const SeenHost*>& hosts, Clock::time_point now) {
  ++plan_.links_asked;
  plan_.linked.clear();
  for (const SeenHost* host : hosts) {
    // A host that cannot be probed is not asked, and not blamed.
    if (host->report.link_port == 0) continue;
    plan_.linked.push_back({host->report.id, host->report.link_address, host->report.link_port});
  }
  links_asked_at_ = now;
  ++plan_.version;
}

// Asks, and waits for the answers of those that can say it.
bool Coordinator::know_links(const std::vector<const SeenHost*>& hosts, Clock::time_point now) {
  if (!links_asked_at_) ask_for_links(hosts, now);
  // A host that does not answer is not known to be cut off. The epoch begins without its answer.
  if (now - *links_asked_at_ >= options_.link_patience) return true;
  return std::ranges::all_of(hosts, [&](const SeenHost* host) {
    return host->report.link_port == 0 || host->report.links_known == plan_.links_asked;
  });
}

void Coordinator::drop_unreached(const std::vector<const SeenHost*>& hosts,
                                 const std::vector<SeenHost>& all, Clock::time_point now) {
  must_know_links_ = false;
  links_asked_at_.reset();
  plan_.linked.clear();  // later plans need not carry it
  std::vector<const HostReport*> reports;
  for (const SeenHost* host : hosts) reports.push_back(&host->report);
  const std::vector<DeadLink> links = dead_links(reports, plan_.links_asked);
  if (links.empty()) return gather(all, now);
  // From now on a host that was left out may be the reason why others look unreachable.
  has_dropped_unreached_ = true;
  const std::vector<const HostReport*> dropped = hosts_to_drop(reports, links);
  std::vector<std::string> names;
  for (const HostReport* host : dropped) {
    names.push_back(host->name);
    excluded_.add(host->name, "a dead link", now + options_.policy.exclusion);
  }
  const std::string more =
      links.size() > 1 ? concat(", and ", links.size() - 1, " links more") : "";
  const std::string reason =
      concat("a dead link: ", describe(links.front()), more, "; without ", joined(names));
  plan_.reason = reason;
  record({.kind = EventKind::kFailure,
          .host = links.front().from->name,
          .cause = "dead link",
          .text = reason});
  if (std::ssize(candidates(all, now)) >= options_.min_hosts) return gather(all, now);
  stop(kPeerLost,
       concat(reason, " there are fewer than the ", options_.min_hosts, " hosts of --nnodes"),
       /*is_graceful=*/true, now);
}

void Coordinator::refuse(const HostReport& host, const std::string& reason) {
  plan_.refused.push_back({host.id, reason});
  ++plan_.version;
  // Recorded as a notice and not as a failure: the job goes on without it.
  record({.kind = EventKind::kNotice, .host = host.name, .cause = "refused", .text = reason});
}

// Meets new hosts, and says farewell to those that were not in an epoch.
void Coordinator::welcome(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  for (const SeenHost& host : hosts) {
    const HostReport& report = host.report;
    // emplace tells new ids; a host that comes back has a new one and is welcomed again.
    if (!known_.emplace(report.id, now).second) continue;
    record({.kind = EventKind::kJoin,
            .host = report.name,
            .text = concat("host ", report.name, " (", report.address, ", ", report.num_workers,
                           " workers) joined")});
    // Compared once, with the first report: later ones leave the program out.
    const std::string difference = program_difference(report.program, options_.program);
    if (!difference.empty()) {
      refuse(report, concat("host ", report.name, " runs something else than the leader: ",
                            difference, "; start the same on all hosts"));
    }
    check_clock(report);
    check_name(report, hosts, now);
  }
  for (const SeenHost& host : hosts) {
    // Hosts of a running epoch are looked at by find_failure(), which says what their loss means.
    const bool is_busy = plan_.phase != Phase::kGather && plan_.find(host.report.id) != nullptr;
    if (is_busy || is_alive(host, now)) continue;
    if (!counted_out_.insert(host.report.id).second) continue;
    record({.kind = EventKind::kLeave,
            .host = host.report.name,
            .text = concat("host ", host.report.name, " is gone")});
  }
}

// A host that waits with the --node-rank of another would do so for ever. One whose agent was
// started again may find its predecessor still there, which is counted out soon.
void Coordinator::refuse_taken_places(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  for (const SeenHost& host : hosts) {
    const HostReport& report = host.report;
    const bool waits = report.node_rank >= 0 && plan_.find(report.id) == nullptr &&
                       // Its predecessor with the same rank may be dead and not counted out yet.
                       may_take_part(host, now) && now - known_.at(report.id) > options_.patience;
    if (!waits) continue;
    const auto holder = std::ranges::find_if(hosts, [&](const SeenHost& other) {
      return other.report.node_rank == report.node_rank && other.report.id != report.id &&
             plan_.find(other.report.id) != nullptr && is_alive(other, now);
    });
    if (holder == hosts.end()) continue;
    refuse(report, concat("host ", report.name, " has --node-rank ", report.node_rank, ", as has ",
                          holder->report.name, "; give each agent another one"));
  }
}

// A host that was paused with its workers does not know it, and goes on where it was.
void Coordinator::tell_counted_out(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  std::vector<std::string> heard;
  // Heard, although counted out: it was paused and does not know.
  for (const SeenHost& host : hosts) {
    const bool is_heard = now - host.seen <= options_.patience;
    if (is_heard && counted_out_.contains(host.report.id)) heard.push_back(host.report.id);
  }
  if (heard == plan_.counted_out) return;
  plan_.counted_out = std::move(heard);
  ++plan_.version;
}

// Times in logs are those of their hosts.
void Coordinator::check_clock(const HostReport& host) {
  if (host.clock_us == 0) return;
  const auto here = std::chrono::system_clock::now().time_since_epoch();
  const auto ahead = std::chrono::microseconds(host.clock_us) - here;
  // The network's delay is in it too, so the tolerance is seconds and not milliseconds.
  if (std::chrono::abs(ahead) < kClockTolerance) return;
  const auto seconds = static_cast<int64_t>(in_seconds(std::chrono::abs(ahead)));
  record({.kind = EventKind::kNotice,
          .host = host.name,
          .cause = "clock",
          .text = concat("the clock of host ", host.name, " is ", seconds, " s ",
                         ahead.count() > 0 ? "ahead of" : "behind",
                         " the leader's, and so are the times in its logs")});
}

void Coordinator::check_name(const HostReport& host, const std::vector<SeenHost>& hosts,
                             Clock::time_point now) {
  for (const SeenHost& other : hosts) {
    const bool is_twin = other.report.name == host.name && other.report.id != host.id &&
                         // Two agents of one host have the same name and the same address; that is
                         // no mistake.
                         other.report.address != host.address && is_alive(other, now);
    if (!is_twin) continue;
    record(
        {.kind = EventKind::kNotice,
         .host = host.name,
         .cause = "address",
         .text = concat("host ", host.name, " answers from two addresses, ", other.report.address,
                        " and ", host.address, "; give hosts different names with --host-name")});
  }
}

}  // namespace trireme::launch
