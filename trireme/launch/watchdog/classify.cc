#include "trireme/launch/watchdog/classify.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/base/replicas_differ.h"
#include "trireme/base/words.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/comm/shared/segment.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// Faults are looked for from certain to uncertain, and the first kind that is found is the answer.
// A corruption explains exits, and an exit explains why others lost a peer; so each later kind is
// asked only when the one before says nothing. A hang needs silence of all ranks: while one makes
// progress, the others may wait for it rightly. It is then explained by comm::diagnose(), the
// function behind `trireme doctor`, so that both name the same rank. Time of its own is what a
// straggler is judged by. Wall time is the same for all ranks of a synchronous step, because the
// fast ones wait for the slow one.

namespace {

using std::chrono::nanoseconds;
using Kind = comm::Finding::Kind;

// Below this share of a core a process does nothing.
constexpr double kIdleCores = 0.05;
// A rank that computes without a call, and for which nobody waits, hangs after this many times
// Policy::hang_after: one long computation looks the same.
constexpr int kPatience = 10;
// One slow window may be a pause.
constexpr size_t kWindowsInARow = 3;
constexpr size_t kMaxEvidence = 1000;

std::string seconds_text(nanoseconds duration) {
  const double seconds = in_seconds(duration);
  return format(seconds < 0.1 ? "%.4f s" : seconds < 10 ? "%.2f s" : "%.0f s", seconds);
}

// The diagnosis may name ranks that no observation has, such as one that has left.
const Observation* find_rank(std::span<const Observation> observations, int rank) {
  const auto found = std::ranges::find(observations, rank, &Observation::rank);
  return found == observations.end() ? nullptr : &*found;
}

std::string with_host(int rank, const std::string& host) {
  return host.empty() ? concat("rank ", rank) : concat("rank ", rank, " on host ", shown(host));
}

bool is_stopped(const Observation& rank) {
  return rank.process_state == 'T' || rank.process_state == 't';
}

// The state of the process, which a ring does not show.
std::string process_text(const Observation& rank) {
  const std::string process = concat("process ", rank.process_id);
  switch (rank.process_state) {
    case 'T':
    case 't': return concat(process, " is stopped (kill -CONT ", rank.process_id, ")");
    case 'D': return concat(process, " waits for a disk or a network file system (state D)");
    case 'Z':
    case '?': return concat(process, " is gone");
    default: break;
  }
  if (rank.cores_used < kIdleCores) return concat(process, " sleeps");
  return concat(process, format(" computes on %.1f cores", rank.cores_used));
}

Fault fault_of(FaultKind kind, int rank, std::span<const Observation> observations,
               const std::string& evidence, const Policy& policy) {
  Fault fault{.kind = kind,
              .rank = rank,
              .evidence = shown(evidence, kMaxEvidence),
              .action = action_of(policy, kind)};
  // A worker that is gone is still in the last observations, which know its host.
  if (const Observation* const observed = find_rank(observations, rank)) {
    fault.host = observed->host;
    if (observed->has_ring) fault.step = observed->step;
  }
  return fault;
}

std::string describe(const WorkerExit& exit) {
  const std::string how = launch::describe(
      {.rank = exit.rank, .code = exit.code, .signal = exit.signal, .message = exit.message});
  const std::string place = exit.host.empty() ? "" : concat(" (host ", shown(exit.host), ")");
  return concat(how, place);
}

// The faults of a corruption that one or more workers report.
std::vector<Fault> find_corruption(std::span<const WorkerExit> exits,
                                   std::span<const Observation> observations,
                                   const Policy& policy) {
  std::vector<Fault> faults;
  for (const WorkerExit& exit : exits) {
    const auto found = parse_replicas_differ(exit.message);
    if (!found) continue;
    for (const int rank : found->ranks) {
      if (std::ranges::find(faults, rank, &Fault::rank) != faults.end()) continue;
      Fault fault = fault_of(FaultKind::kCorruption, rank, observations,
                             shown(exit.message, kMaxEvidence), policy);
      const auto own = std::ranges::find(exits, rank, &WorkerExit::rank);
      if (fault.host.empty() && own != exits.end()) fault.host = own->host;
      fault.step = exit.step;
      // With two equal halves nobody knows which one is wrong.
      if (!found->has_majority && fault.action == Action::kExclude) fault.action = Action::kRestart;
      faults.push_back(std::move(fault));
    }
  }
  return faults;
}

// Explains why the run hangs, in the words of the finding. The process tells more about the
// culprit.
Fault hang_of(const comm::Finding& finding, std::span<const Observation> observations,
              const Policy& policy) {
  const int rank = finding.ranks.empty() ? -1 : finding.ranks.front();
  const Observation* const observed = find_rank(observations, rank);
  std::string text = finding.text;
  // A stopped or dead process is named in the finding already.
  const bool is_said = finding.kind == Kind::kStopped || finding.kind == Kind::kDied;
  if (observed != nullptr && !is_said) text += "; " + process_text(*observed);
  return fault_of(FaultKind::kHang, rank, observations, text, policy);
}

bool is_culprit(const comm::Finding& finding) {
  return finding.kind != Kind::kWaiting && finding.kind < Kind::kUnrecorded;
}

// Nobody waits for anybody. A rank that computes or waits for a disk may take its time.
std::vector<Fault> find_silence(std::span<const Observation> observations, const Policy& policy) {
  std::vector<Fault> faults;
  for (const Observation& rank : observations) {
    const bool computes =
        (rank.cores_used >= kIdleCores || rank.process_state == 'D') && !is_stopped(rank);
    if (rank.idle < policy.hang_after * (computes ? kPatience : 1)) continue;
    const std::string call =
        rank.last_call.empty() ? "" : concat(", the last of which was ", rank.last_call);
    faults.push_back(fault_of(
        FaultKind::kHang, rank.rank, observations,
        concat(with_host(rank.rank, rank.host), " has begun and ended no call and no step for ",
               seconds_text(rank.idle), call, "; nobody waits for it; ", process_text(rank)),
        policy));
  }
  return faults;
}

using Windows = std::map<int64_t, nanoseconds>;  // first step -> own computing per step

// The latest windows in a row that all of these ranks have; fewer than kWindowsInARow: none.
// From the newest back: a straggler of an hour ago is old news.
std::vector<int64_t> common_windows(const std::map<int, Windows>& ranks) {
  std::vector<int64_t> common;
  const Windows& first = ranks.begin()->second;
  for (auto window = first.rbegin(); window != first.rend(); ++window) {
    const int64_t begin = window->first;
    const bool is_everywhere =
        std::ranges::all_of(ranks, [&](const auto& rank) { return rank.second.contains(begin); });
    if (!is_everywhere) {
      if (common.empty()) continue;
      break;
    }
    // Windows without a gap, or three slow moments of a day would look like one slow rank.
    if (!common.empty() && common.back() != begin + kWindowSteps) break;
    common.push_back(begin);
    if (common.size() == kWindowsInARow) return common;
  }
  return {};
}

// Finds stragglers among ranks that do the same work.
std::vector<Fault> find_stragglers_among(const std::map<int, Windows>& ranks,
                                         std::span<const Observation> observations,
                                         const Policy& policy) {
  const std::vector<int64_t> windows = common_windows(ranks);
  std::vector<Fault> faults;
  // One rank alone has no median to compare with.
  if (ranks.size() < 2 || windows.empty()) return faults;
  for (const auto& [rank, own] : ranks) {
    nanoseconds slowest{}, others{};
    // In all windows, against the peers without the rank itself: with two ranks it would pull the
    // median up.
    const bool is_slow = std::ranges::all_of(windows, [&](int64_t window) {
      std::vector<int64_t> peers;
      for (const auto& [peer, its] : ranks) {
        if (peer != rank) peers.push_back(its.at(window).count());
      }
      others = nanoseconds(median(std::move(peers)));
      slowest = own.at(window);
      // Both a factor and an absolute difference: 1.5 times of a microsecond is noise.
      return in_seconds(slowest) > policy.slower_by * in_seconds(others) &&
             slowest - others >= policy.slower_by_at_least;
    });
    if (!is_slow) continue;
    const Observation& observed = *find_rank(observations, rank);
    const int64_t last_step = windows.front() + kWindowSteps - 1;
    faults.push_back(
        fault_of(FaultKind::kStraggler, rank, observations,
                 concat(with_host(rank, observed.host), " computes for ", seconds_text(slowest),
                        " in each step, and the median of its ", ranks.size() - 1, " peers for ",
                        seconds_text(others), ", waiting not included (steps ", windows.back(),
                        " to ", last_step, ")"),
                 policy));
  }
  return faults;
}

}  // namespace

std::vector<Fault> classify_exits(std::span<const WorkerExit> exits,
                                  std::span<const Observation> observations, const Policy& policy) {
  std::vector<Fault> faults = find_corruption(exits, observations, policy);
  if (!faults.empty()) return faults;
  // Twice over the exits: ranks that lost a peer count only when no other failed by itself.
  for (const bool is_peer_loss : {false, true}) {
    for (const WorkerExit& exit : exits) {
      if (exit.signal == 0 && exit.code == 0) continue;
      if (is_peer_loss != (exit.signal == 0 && exit.code == kPeerLost)) continue;
      const bool is_final =
          // Wrong configs and damaged checkpoints stay so.
          exit.signal == 0 && (exit.code == kUserError || exit.code == kBadCheckpoint);
      const bool is_of_host = is_final && comm::is_shared_memory_full(exit.message);
      faults.push_back({.kind = FaultKind::kCrash,
                        .rank = exit.rank,
                        .host = exit.host,
                        .step = exit.step,
                        .evidence = shown(describe(exit), kMaxEvidence),
                        .action = is_of_host ? Action::kExclude
                                  : is_final ? Action::kStop
                                             : policy.crash,
                        .is_of_host = is_of_host});
    }
    if (!faults.empty()) break;
  }
  // Stable: among equal faults the rank's order stays.
  std::ranges::stable_sort(faults, std::greater<>(),
                           [](const Fault& fault) { return fault.action == Action::kStop; });
  return faults;
}

std::vector<Fault> find_hang(std::span<const Observation> observations, const Policy& policy) {
  std::vector<comm::ObservedRank> ranks;
  for (const Observation& rank : observations) {
    if (!rank.has_ring) continue;
    // One rank that moves is enough: the others may wait for it.
    if (rank.idle < policy.hang_after) return {};
    if (rank.evidence) ranks.push_back(*rank.evidence);
  }
  if (ranks.empty()) return {};
  // Every open call is as old as the silence. Clocks of hosts may differ by more.
  const auto findings = comm::diagnose(ranks, {.late_after = std::chrono::milliseconds(0)});
  if (comm::is_healthy(findings)) return find_silence(observations, policy);
  std::vector<Fault> faults;
  for (const comm::Finding& finding : findings) {
    if (is_culprit(finding)) faults.push_back(hang_of(finding, observations, policy));
  }
  return faults.empty() ? find_silence(observations, policy) : faults;
}

std::vector<Fault> find_stragglers(std::span<const Observation> observations,
                                   const Policy& policy) {
  std::map<int, std::map<int, Windows>> stages;  // stage -> rank -> windows
  for (const Observation& rank : observations) {
    if (!rank.has_ring) continue;
    Windows& windows = stages[rank.stage][rank.rank];
    for (const StepWindow& window : rank.windows) windows[window.first_step] = window.computing;
  }
  std::vector<Fault> faults;
  for (const auto& [stage, ranks] : stages) {
    for (Fault& fault : find_stragglers_among(ranks, observations, policy)) {
      faults.push_back(std::move(fault));
    }
  }
  return faults;
}

std::vector<Fault> classify(std::span<const Observation> observations, const Policy& policy) {
  std::vector<Fault> faults = find_hang(observations, policy);
  return faults.empty() ? find_stragglers(observations, policy) : faults;
}

}  // namespace trireme::launch
