// Length: one function per finding, and its texts.
#include "trireme/comm/recorder/diagnosis.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include <c10/core/ScalarType.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/sized_message.h"

namespace trireme::comm {

// Findings are made in the order of what is certain: calls that differ, processes that are gone or
// stopped, then ranks for which others wait. culprits_ holds who was blamed, so nobody is blamed
// twice for one cause. A rank that itself waited for another one at that time is a victim and is
// not called late. So a death must be found before the waits are explained, which it has caused. If
// nobody is to blame, what remains is a circle of waits, a call that does not end, or a healthy
// run.

namespace {

using Kind = Finding::Kind;
using std::chrono::nanoseconds;

std::string call_text(const std::string& operation, uint64_t sequence, const std::string& group) {
  return concat(operation, " #", sequence, " of group ", group.empty() ? "?" : group);
}

std::string time_text(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(time));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string duration_text(nanoseconds duration) {
  // The clocks of two hosts may differ by more than the duration.
  const double seconds = std::max(0.0, in_seconds(duration));
  return format(seconds < 10 ? "%.2f s" : "%.0f s", seconds);
}

// "rank 1", "ranks 0, 2 and 3", "ranks 0, 1, 2, 3, 4, 5 and 58 others".
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  const size_t shown = ranks.size() <= kMost ? ranks.size() : kMost - 2;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += concat(i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  if (shown < ranks.size()) text += concat(" and ", ranks.size() - shown, " others");
  return text;
}

const char* plural(const std::vector<int>& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

std::string missing_text(const std::vector<int>& ranks) {
  return concat(ranks_text(ranks), plural(ranks, " has", " have"),
                " no ring: ", plural(ranks, "it has", "they have"),
                " not started, or recorded in another host's folder");
}

class Diagnosis {
 public:
  Diagnosis(const ObservedRun& run, Waits waits)
      : run_(run), waits_(std::move(waits.waits)), mismatches_(std::move(waits.mismatches)) {}

  std::vector<Finding> find() {
    for (const Mismatch& mismatch : mismatches_) blame_mismatch(mismatch);
    blame_processes();
    blame_absent_ranks();
    blame_missing_ranks();
    report_the_rest();
    // Stable: within a kind the order in which blame was found stays, most certain first.
    std::ranges::stable_sort(findings_, {}, &Finding::kind);
    if (is_healthy(findings_)) report_health();
    return std::move(findings_);
  }

 private:
  void blame_mismatch(const Mismatch& mismatch);
  void blame_processes();
  void blame_absent_ranks();
  void blame_absent_rank(int rank, const Wait& wait);
  void blame_missing_ranks();
  void report_the_rest();
  void report_deadlock();
  void report_health();
  void report_silence();
  bool is_victim(int rank, const Wait& of) const;
  bool has_left(int rank, const Wait& wait) const;
  const Wait* first_wait_for(int rank) const;
  void add(Kind kind, std::vector<int> ranks, const Wait* wait, const std::string& text);
  std::string wait_text(const Wait& wait) const;
  std::string last_call_text(int rank) const;
  std::string process_text(int rank) const;

  const ObservedRun& run_;
  std::vector<Wait> waits_;
  std::vector<Mismatch> mismatches_;
  std::set<int> culprits_;
  std::vector<Finding> findings_;
};

void Diagnosis::blame_mismatch(const Mismatch& mismatch) {
  std::string text;
  for (const auto& [record, ranks] : mismatch.calls) {
    text += concat(text.empty() ? "" : " and ", ranks_text(ranks),
                   plural(ranks, " calls ", " call "), to_string(record));
  }
  // The call that the fewest ranks make comes first.
  const auto& [odd_call, odd_ranks] = mismatch.calls.front();
  Finding finding{.kind = Kind::kMismatch, .ranks = odd_ranks};
  finding.group = mismatch.group;
  finding.sequence = mismatch.sequence;
  finding.operation = odd_call.operation;
  finding.text = concat("the ranks differ in call #", mismatch.sequence, " of group ",
                        mismatch.group, ": ", text);
  findings_.push_back(std::move(finding));
}

void Diagnosis::add(Kind kind, std::vector<int> ranks, const Wait* wait, const std::string& text) {
  Finding finding{.kind = kind, .ranks = std::move(ranks), .text = text};
  if (wait != nullptr) {
    finding.group = wait->group;
    finding.sequence = wait->sequence;
    finding.operation = wait->operation;
    finding.waited = (wait->has_given_up() ? wait->gave_up : run_.now()) - wait->since;
  }
  findings_.push_back(std::move(finding));
}

// "rank 0 waits in all_reduce #5 of group world since ... (35 s)".
std::string Diagnosis::wait_text(const Wait& wait) const {
  const std::string call = call_text(wait.operation, wait.sequence, wait.group);
  if (wait.has_given_up()) {
    return concat(ranks_text(wait.waiting), " gave up ", call, " at ", time_text(wait.gave_up),
                  ", after ", duration_text(wait.gave_up - wait.since));
  }
  if (wait.is_over) {
    return concat(ranks_text(wait.waiting), " had waited in ", call, " since ",
                  time_text(wait.since));
  }
  return concat(ranks_text(wait.waiting), plural(wait.waiting, " waits in ", " wait in "), call,
                " since ", time_text(wait.since), " (", duration_text(run_.now() - wait.since),
                ")");
}

std::string Diagnosis::last_call_text(int rank) const {
  const auto& records = run_.ring(rank).records;
  if (records.empty()) return "it has recorded no call";
  const Record& last = records.back();
  const bool has_group = last.group >= 0;
  const std::string call =
      call_text(last.operation, last.sequence,
                has_group ? run_.ring(rank).groups[last.group].name : std::string());
  switch (last.state) {
    case CallState::kIssued: return concat("its last call, ", call, ", has not begun");
    case CallState::kStarted: {
      const std::string since = concat(call, " since ", time_text(last.started));
      if (run_.has_ended(rank)) return "it was in " + since;
      return concat("it is in ", since, " (", duration_text(run_.now() - last.started), ")");
    }
    case CallState::kDone:
    case CallState::kFailed:
      return concat("its last call, ", call,
                    last.state == CallState::kDone ? ", ended " : ", failed ",
                    duration_text(run_.now() - last.ended), " ago");
  }
  return "";
}

std::string Diagnosis::process_text(int rank) const {
  return concat("process ", run_.ring(rank).process_id, " on ", run_.ring(rank).host);
}

const Wait* Diagnosis::first_wait_for(int rank) const {
  const auto found = std::ranges::find_if(waits_, [&](const Wait& wait) {
    return std::ranges::find(wait.absent, rank) != wait.absent.end();
  });
  return found == waits_.end() ? nullptr : &*found;
}

void Diagnosis::blame_processes() {
  std::vector<int> order;
  for (const auto& [rank, observed] : run_.ranks()) {
    if (run_.is_dead(rank) || run_.is_stopped(rank)) order.push_back(rank);
  }
  // Ranks that others waited for come first, then those with the oldest last event.
  std::ranges::stable_sort(order, {}, [this](int rank) {
    return std::pair(first_wait_for(rank) == nullptr, run_.last_event(rank));
  });
  for (const int rank : order) {
    culprits_.insert(rank);
    const Wait* const wait = first_wait_for(rank);
    const std::string victims = wait == nullptr ? "" : "; " + wait_text(*wait);
    const std::string what = run_.is_dead(rank)
                                 ? concat(" died: ", process_text(rank), " is gone, last seen ",
                                          time_text(run_.last_event(rank)))
                                 : concat(" is stopped: ", process_text(rank),
                                          ", by a signal or a debugger (kill -CONT ",
                                          run_.ring(rank).process_id, " lets it go on)");
    add(run_.is_dead(rank) ? Kind::kDied : Kind::kStopped, {rank}, wait,
        concat("rank ", rank, what, "; ", last_call_text(rank), victims));
  }
}

// Whether a rank that others wait for was itself waiting for another one at that time.
bool Diagnosis::is_victim(int rank, const Wait& of) const {
  return std::ranges::any_of(waits_, [&](const Wait& wait) {
    return &wait != &of && wait.since <= of.gave_up && !wait.absent.empty() &&
           std::ranges::find(wait.waiting, rank) != wait.waiting.end();
  });
}

void Diagnosis::blame_absent_ranks() {
  for (const Wait& wait : waits_) {
    // One line for all that have no ring, however many they are.
    std::vector<int> missing;
    for (const int rank : wait.absent) {
      if (culprits_.contains(rank) || (run_.has_ring(rank) && is_victim(rank, wait))) continue;
      culprits_.insert(rank);
      if (run_.has_ring(rank)) {
        blame_absent_rank(rank, wait);
      } else {
        missing.push_back(rank);
      }
    }
    if (!missing.empty()) {
      add(Kind::kMissing, missing, &wait, concat(missing_text(missing), "; ", wait_text(wait)));
    }
  }
}

// Only when the run has ended: otherwise a rank may still come.
void Diagnosis::blame_missing_ranks() {
  const auto& ranks = run_.ranks();
  const bool has_ended =
      std::ranges::all_of(ranks, [this](const auto& item) { return run_.has_ended(item.first); });
  std::vector<int> missing = run_.missing();
  std::erase_if(missing, [this](int rank) { return culprits_.contains(rank); });
  if (!has_ended || missing.empty()) return;
  add(Kind::kMissing, missing, nullptr,
      concat(missing_text(missing), "; all others of the run have ended"));
}

// A rank's groups are destroyed a moment before its recorder, so its peers may have failed before
// it closed. But a rank that was merely late fails too when it comes.
bool Diagnosis::has_left(int rank, const Wait& wait) const {
  const Ring& ring = run_.ring(rank);
  const bool has_failed = std::ranges::any_of(
      ring.records, [](const Record& record) { return record.state == CallState::kFailed; });
  return ring.closed && (*ring.closed <= wait.gave_up || !has_failed);
}

void Diagnosis::blame_absent_rank(int rank, const Wait& wait) {
  const std::string call = call_text(wait.operation, wait.sequence, wait.group);
  const std::string victims = "; " + wait_text(wait);
  if (has_left(rank, wait)) {
    add(Kind::kLeft, {rank}, &wait,
        concat("rank ", rank, " left the run at ", time_text(*run_.ring(rank).closed),
               " and had not begun ", call, victims));
  } else {
    const bool is_far = run_.ranks().at(rank)->process == ProcessState::kUnknown;
    add(Kind::kLate, {rank}, &wait,
        concat("rank ", rank, wait.has_given_up() ? " was late: it had" : " is late: it has",
               " not begun ", call, victims, "; ", last_call_text(rank), " (", process_text(rank),
               is_far ? ", which cannot be seen from here)" : ")"));
  }
}

// All ranks that are waited for wait themselves: the chains are circular.
void Diagnosis::report_deadlock() {
  std::set<int> ranks;
  std::string chain;
  for (const Wait& wait : waits_) {
    ranks.insert(wait.waiting.begin(), wait.waiting.end());
    chain += concat(chain.empty() ? "" : "; ", wait_text(wait), " for ", ranks_text(wait.absent));
  }
  const std::vector<int> sorted(ranks.begin(), ranks.end());
  add(Kind::kDeadlock, sorted, &waits_[0],
      concat(ranks_text(sorted), " wait for each other: ", chain));
}

// Reports the remaining waits: consequences of a finding, or calls that no rank is late in.
void Diagnosis::report_the_rest() {
  const bool is_explained = !findings_.empty();
  // Nothing explains these waits, so each rank that is waited for waits itself.
  if (!is_explained &&
      std::ranges::any_of(waits_, [](const Wait& wait) { return !wait.absent.empty(); })) {
    return report_deadlock();
  }
  for (const Wait& wait : waits_) {
    const auto names_it = [&](const Finding& finding) {
      return finding.group == wait.group && finding.sequence == wait.sequence &&
             finding.operation == wait.operation;
    };
    // A finding has told of it.
    if (std::ranges::any_of(findings_, names_it)) continue;
    if (is_explained) {
      add(Kind::kWaiting, wait.waiting, &wait,
          wait_text(wait) + (wait.absent.empty() ? "" : " for " + ranks_text(wait.absent)));
    } else if (wait.has_given_up()) {
      add(Kind::kFailed, wait.waiting, &wait, wait_text(wait) + "; every rank had made the call");
    } else {
      add(Kind::kStuck, wait.waiting, &wait,
          wait_text(wait) + "; every rank has made the call and it does not end");
    }
  }
}

// No rank has recorded a call. Without evidence a run is not called healthy.
void Diagnosis::report_silence() {
  const std::vector<int> missing = run_.missing();
  std::vector<int> all;
  bool all_ended = true;
  for (const auto& [rank, observed] : run_.ranks()) {
    all.push_back(rank);
    all_ended = all_ended && run_.has_ended(rank);
  }
  add(Kind::kUnrecorded, all, nullptr,
      concat("nothing is recorded: ", ranks_text(all),
             all_ended ? " ended before the first call"
                       : concat(plural(all, " has", " have"),
                                " made no call yet; ask again, or look at what the run prints"),
             missing.empty() ? "" : concat("; ", missing_text(missing))));
}

void Diagnosis::report_health() {
  if (std::ranges::all_of(run_.ranks(), [](const auto& item) {
        return item.second->ring.records.empty() && item.second->ring.num_dropped == 0;
      })) {
    return report_silence();
  }
  std::vector<int> all;
  double slowest_rate = 0;
  size_t num_calls = 0;
  WallTime last{};
  bool all_ended = true;
  for (const auto& [rank, observed] : run_.ranks()) {
    const Ring& own = observed->ring;
    const auto is_done = [](const Record& record) { return record.state == CallState::kDone; };
    const auto num_done = static_cast<size_t>(std::ranges::count_if(own.records, is_done));
    const WallTime first = own.records.empty() ? own.created : own.records.front().issued;
    const double seconds = in_seconds(run_.now() - first);
    const double rate = static_cast<double>(num_done) / std::max(seconds, 1e-9);
    slowest_rate = all.empty() ? rate : std::min(slowest_rate, rate);
    for (const RecordedGroup& group : own.groups) {
      num_calls += group.num_collectives + group.num_point_to_point;
    }
    all.push_back(rank);
    last = std::max(last, run_.last_event(rank));
    all_ended = all_ended && run_.has_ended(rank);
  }
  if (all_ended) {
    add(Kind::kFinished, all, nullptr,
        concat("finished: ", ranks_text(all), " ended at ", time_text(last), " after ", num_calls,
               " calls, none of which failed"));
    return;
  }
  const std::vector<int> missing = run_.missing();
  const std::string rate = format(slowest_rate < 10 ? "%.2f" : "%.0f", slowest_rate);
  add(Kind::kProgress, all, nullptr,
      concat("healthy: ", ranks_text(all), plural(all, " makes ", " make "), rate,
             plural(all, " calls a second", " calls a second each"), ", ", num_calls,
             " so far, the last ", duration_text(run_.now() - last), " ago; nobody is late",
             missing.empty() ? "" : concat("; ", missing_text(missing))));
}

}  // namespace

const char* name_of(Finding::Kind kind) {
  switch (kind) {
    case Kind::kMismatch: return "mismatch";
    case Kind::kDied: return "died";
    case Kind::kStopped: return "stopped";
    case Kind::kMissing: return "missing";
    case Kind::kLeft: return "left";
    case Kind::kLate: return "late";
    case Kind::kDeadlock: return "deadlock";
    case Kind::kStuck: return "stuck";
    case Kind::kFailed: return "failed";
    case Kind::kWaiting: return "waiting";
    case Kind::kUnrecorded: return "unrecorded";
    case Kind::kProgress: return "progress";
    case Kind::kFinished: return "finished";
  }
  return "";
}

std::vector<Finding> diagnose(const std::vector<ObservedRank>& ranks,
                              const DiagnosisOptions& options) {
  TRIREME_ASSERT(!ranks.empty(), "no rank to diagnose");
  const ObservedRun run(ranks);
  return Diagnosis(run, find_waits(run, options.late_after)).find();
}

bool is_healthy(const std::vector<Finding>& findings) {
  return std::ranges::all_of(
      findings, [](const Finding& finding) { return finding.kind >= Kind::kProgress; });
}

std::string to_string(const Record& record) {
  std::vector<std::string> parts;
  if (record.dtype >= 0) {
    std::string tensor = concat(c10::toString(static_cast<c10::ScalarType>(record.dtype)), " [");
    for (size_t i = 0; i < record.shape.size(); ++i) {
      tensor += concat(i == 0 ? "" : ", ", record.shape[i]);
    }
    const bool is_cut = record.num_dims > std::ssize(record.shape);
    parts.push_back(tensor + (is_cut ? ", ...]" : "]"));
    // As a double: the lengths in a damaged ring may have a product beyond any integer.
    const double shown =
        std::accumulate(record.shape.begin(), record.shape.end(), 1.0, std::multiplies<>());
    if (record.elements >= 0 && (is_cut || static_cast<double>(record.elements) != shown)) {
      parts.push_back(concat(record.elements, " elements"));
    }
  }
  if (record.reduce_op >= 0) parts.emplace_back(name_of(static_cast<ReduceOp>(record.reduce_op)));
  if (record.is_point_to_point) {
    parts.push_back(record.peer < 0 ? "any source" : concat("peer ", record.peer));
    parts.push_back(concat("tag ", shown_tag(record.tag)));
  } else if (record.peer >= 0) {
    parts.push_back(concat("root ", record.peer));
  }
  std::string text = record.operation + "(";
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  return text + ")";
}

const char* process_word(const ObservedRank& rank) {
  if (rank.ring.closed) return "ended";
  switch (rank.process) {
    case ProcessState::kRunning: return "running";
    case ProcessState::kStopped: return "stopped";
    case ProcessState::kGone: return "gone";
    case ProcessState::kUnknown: return "unknown";
  }
  return "unknown";
}

}  // namespace trireme::comm
