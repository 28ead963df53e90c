// The coordinator's view of hosts: who is there, who may take part, who is new.
#include <algorithm>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/launch/membership/coordinator.h"
#include "trireme/launch/membership/program.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::chrono::seconds kClockTolerance{2};

}  // namespace

bool Coordinator::is_alive(const SeenHost& host, Clock::time_point now) const {
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

// All that may take part, in the order of ranks: hosts of the last epoch stay in theirs, new ones
// come after them by node rank, then in the order in which they joined.
std::vector<const SeenHost*> Coordinator::ordered(const std::vector<SeenHost>& hosts,
                                                  Clock::time_point now) const {
  std::vector<const SeenHost*> found;
  for (const PlannedHost& planned : plan_.hosts) {
    const SeenHost* host = find(hosts, planned.id);
    if (host != nullptr && may_take_part(*host, now)) found.push_back(host);
  }
  const auto num_old = static_cast<std::ptrdiff_t>(found.size());
  for (const SeenHost& host : hosts) {
    if (may_take_part(host, now) && plan_.find(host.report.id) == nullptr) found.push_back(&host);
  }
  std::stable_sort(found.begin() + num_old, found.end(), [](const auto* a, const auto* b) {
    // As unsigned: hosts without a place come last.
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

void Coordinator::refuse(const HostReport& host, const std::string& reason) {
  plan_.refused.push_back({host.id, reason});
  ++plan_.version;
  record({.kind = EventKind::kNotice, .host = host.name, .cause = "refused", .text = reason});
}

// Meets new hosts, and says farewell to those that were not in an epoch.
void Coordinator::welcome(const std::vector<SeenHost>& hosts, Clock::time_point now) {
  for (const SeenHost& host : hosts) {
    const HostReport& report = host.report;
    if (!known_.insert(report.id).second) continue;
    record({.kind = EventKind::kJoin,
            .host = report.name,
            .text = concat("host ", report.name, " (", report.address, ", ", report.num_workers,
                           " workers) joined")});
    const std::string difference = program_difference(report.program, options_.program);
    if (!difference.empty()) {
      refuse(report, concat("host ", report.name, " runs something else than the leader: ",
                            difference, "; start the same on all hosts"));
    }
    check_clock(report);
    check_name(report, hosts, now);
  }
  for (const SeenHost& host : hosts) {
    const bool is_busy = plan_.phase != Phase::kGather && plan_.find(host.report.id) != nullptr;
    if (is_busy || is_alive(host, now)) continue;
    if (!counted_out_.insert(host.report.id).second) continue;
    record({.kind = EventKind::kLeave,
            .host = host.report.name,
            .text = concat("host ", host.report.name, " is gone")});
  }
}

// Times in logs are those of their hosts.
void Coordinator::check_clock(const HostReport& host) {
  if (host.clock_us == 0) return;
  const auto here = std::chrono::system_clock::now().time_since_epoch();
  const auto ahead = std::chrono::microseconds(host.clock_us) - here;
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

}  // namespace trireme::launch::inline internal
