#include "trireme/watch/run/crash_words.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/launch/journal/first_errors.h"

namespace trireme::watch {
namespace {

using comm::CallState;
using comm::Finding;
using launch::EventKind;

std::string as_sentence(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  if (!text.empty() && !text.ends_with('.')) text += '.';
  return text;
}

std::string ranks_of(const std::vector<int>& ranks) {
  return launch::ranks_in_words(std::set<int>(ranks.begin(), ranks.end()));
}

std::string call_of(std::string_view operation, uint64_t sequence, std::string_view group) {
  return concat(operation, " #", sequence, " of group ", group.empty() ? "?" : group);
}

// What its launcher or agent wrote about the rank that ended the last start of the job.
const launch::Event* failure_in(const launch::EventLog& events) {
  const launch::Event* failure = nullptr;
  for (const launch::Event& event : events.events) {
    // A recovery leaves the failure behind it, and a new start does too.
    if (event.kind == EventKind::kStart || event.kind == EventKind::kRecovery) failure = nullptr;
    if (event.kind == EventKind::kFailure && event.rank >= 0 && failure == nullptr)
      failure = &event;
  }
  return failure;
}

const comm::ObservedRank* ring_of(const CrashFacts& facts, int rank) {
  const auto found = std::ranges::find(
      facts.ranks, rank, [](const comm::ObservedRank& each) { return each.ring.rank; });
  return found == facts.ranks.end() ? nullptr : &*found;
}

std::string place_of(const comm::ObservedRank* observed) {
  if (observed == nullptr) return "";
  return concat(" It was process ", observed->ring.process_id, " on host ",
                shown(observed->ring.host), ".");
}

std::string rank_words(const CrashFacts& facts, const launch::Event* failure) {
  if (failure != nullptr) {
    return as_sentence(failure->text.empty() ? concat("rank ", failure->rank, " failed")
                                             : failure->text) +
           place_of(ring_of(facts, failure->rank));
  }
  std::vector<int> died;
  for (const Finding& finding : facts.findings) {
    if (finding.kind == Finding::Kind::kDied)
      died.insert(died.end(), finding.ranks.begin(), finding.ranks.end());
  }
  if (died.size() == 1) {
    return concat("Rank ", died.front(), " died: its process has gone without a word, as after ",
                  "kill -9 or when memory is short.", place_of(ring_of(facts, died.front())));
  }
  if (died.size() > 1) {
    const std::string who =
        died.size() == facts.ranks.size() ? concat("all ", died.size(), " ranks") : ranks_of(died);
    return as_sentence(concat(who, " died: their processes have gone without a word. Most likely ",
                              "rank ", died.front(), " was the first"));
  }
  if (!facts.findings.empty() && !comm::is_healthy(facts.findings))
    return as_sentence(facts.findings.front().text);
  const auto& events = facts.events.events;
  if (facts.is_over && !events.empty() && !events.back().text.empty() &&
      events.back().kind == EventKind::kEnd)
    return "None died. The run ended with: " + as_sentence(events.back().text);
  return "Nothing says which: no rank is known to have died or to be late.";
}

// The rank to look at, or nothing.
std::optional<int> rank_in(const CrashFacts& facts, const launch::Event* failure) {
  if (failure != nullptr) return failure->rank;
  if (facts.findings.empty() || comm::is_healthy(facts.findings)) return std::nullopt;
  const Finding& first = facts.findings.front();
  return first.ranks.empty() ? std::nullopt : std::optional(first.ranks.front());
}

std::string step_words(const comm::Ring& ring) {
  if (ring.steps.empty()) return "before its first step";
  const comm::RecordedStep& last = ring.steps.back();
  return last.state == CallState::kStarted ? concat("in step ", last.step)
                                           : concat("after step ", last.step);
}

std::string own_call_words(const comm::Ring& ring, bool is_over) {
  const std::string rank = concat("Rank ", ring.rank, is_over ? " was " : " is ", step_words(ring));
  if (ring.records.empty()) return rank + ", without a call.";
  const comm::Record& last = ring.records.back();
  const bool has_group = last.group >= 0 && last.group < static_cast<int>(ring.groups.size());
  const std::string call = call_of(last.operation, last.sequence,
                                   has_group ? ring.groups[last.group].name : std::string());
  switch (last.state) {
    case CallState::kIssued: return concat(rank, ", about to begin ", call, ".");
    case CallState::kStarted: return concat(rank, ", within ", call, ".");
    case CallState::kDone:
      return concat(rank, ", between two calls: ", call, is_over ? " had" : " has", " ended.");
    case CallState::kFailed: return concat(rank, "; its last call, ", call, ", failed.");
  }
  return "";
}

std::string call_words(const CrashFacts& facts, std::optional<int> rank) {
  const comm::ObservedRank* const observed = rank ? ring_of(facts, *rank) : nullptr;
  std::string text = observed ? own_call_words(observed->ring, facts.is_over) : "";
  if (rank && !facts.ranks.empty()) {
    const comm::ObservedRun run(facts.ranks);
    for (const comm::Wait& wait :
         comm::find_waits(run, comm::DiagnosisOptions().late_after).waits) {
      if (std::ranges::find(wait.absent, *rank) == wait.absent.end() || wait.waiting.empty())
        continue;
      const char* const verb = facts.is_over              ? " waited"
                               : wait.waiting.size() == 1 ? " waits"
                                                          : " wait";
      text += concat(text.empty() ? "" : " ",
                     as_sentence(concat(ranks_of(wait.waiting), verb, " for it in ",
                                        call_of(wait.operation, wait.sequence, wait.group))));
      break;  // the longest; the others follow from it
    }
  }
  if (!text.empty()) return text;
  if (facts.ranks.empty()) return "Nothing says: the run has no flight recorder in its folder.";
  return rank ? concat("Nothing says: rank ", *rank, " has no flight recorder in its folder.")
              : "Nothing says.";
}

std::string duration_words(double seconds) {
  if (seconds < 120) return format("%.3g s", seconds);
  if (seconds < 7200) return format("%.0f min", seconds / 60);
  return format("%.1f h", seconds / 3600);
}

// ", 91 s of training" from the row on; "" when that is not recorded. They are of one start: a run
// that resumes removes the steps behind its checkpoint.
std::string time_from(const MetricColumns& metrics, size_t row) {
  const double begin = metrics.value("time", row) - metrics.value("step_seconds", row);
  const double seconds = metrics.value("time", metrics.num_rows() - 1) - begin;
  return seconds > 0 && std::isfinite(seconds) ? ", " + duration_words(seconds) + " of training"
                                               : "";
}

std::string lost_words(const CrashFacts& facts) {
  const MetricColumns& metrics = facts.metrics;
  const size_t rows = metrics.num_rows();
  const int64_t last = rows == 0 ? 0 : metrics.step_at(rows - 1);
  const int64_t saved = facts.saved_step.value_or(0);
  std::string text = facts.is_over ? "" : "if it is ended now: ";
  if (saved >= last) {
    text += last == 0 ? "only its start: no step was finished" : "only the step under way";
  } else {
    const size_t row = metrics.row_of(saved + 1);
    const int64_t first = metrics.step_at(row);
    text += concat(first == last ? concat("step ", last) : concat("steps ", first, " to ", last),
                   time_from(metrics, row));
  }
  text += facts.saved_step ? concat(". The newest checkpoint is of step ", saved,
                                    "; the same command goes on from there")
                           : ". Its folder has no checkpoint; the same command begins anew";
  return as_sentence(text);
}

}  // namespace

CrashWords crash_words(const CrashFacts& facts) {
  const launch::Event* const failure = facts.is_over ? failure_in(facts.events) : nullptr;
  return {.rank = rank_words(facts, failure),
          .call = call_words(facts, rank_in(facts, failure)),
          .lost = lost_words(facts)};
}

}  // namespace trireme::watch
