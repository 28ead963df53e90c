#include "trireme/watch/run/run_state.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

using comm::ObservedRank;
using comm::ProcessState;

constexpr double kFewestStallSeconds = 60;
constexpr double kStallSteps = 20;

bool has_made_all(const StateFacts& facts) {
  return facts.steps > 0 && facts.last_step >= facts.steps;
}

std::string progress_of(const StateFacts& facts) {
  if (facts.last_step == 0) return "no step is finished";
  if (facts.steps == 0) return concat("step ", facts.last_step);
  return concat("step ", facts.last_step, " of ", facts.steps);
}

double quiet_seconds(const StateFacts& facts) {
  return facts.changed_at ? std::max(0.0, facts.now - *facts.changed_at) : 0;
}

bool is_quiet(const StateFacts& facts) {
  return quiet_seconds(facts) > std::max(kFewestStallSeconds, kStallSteps * facts.step_seconds);
}

StateVerdict finished(const StateFacts& facts) {
  return {RunState::kFinished, concat("all ", facts.steps, " steps are made")};
}

// The first finding is the most likely cause.
std::string cause_of(const StateFacts& facts) {
  return facts.findings.empty() ? "a rank is gone" : facts.findings.front().text;
}

StateVerdict judge_living(const StateFacts& facts) {
  const bool is_ill = !facts.findings.empty() && !comm::is_healthy(facts.findings);
  if (facts.last_step > 0 && is_quiet(facts)) {
    return {RunState::kStalled,
            concat("no step for ", std::llround(quiet_seconds(facts)), " s after ",
                   progress_of(facts), is_ill ? "; " + facts.findings.front().text : "")};
  }
  if (is_ill && facts.findings.front().kind != comm::Finding::Kind::kUnrecorded)
    return {RunState::kStalled, facts.findings.front().text};
  return {RunState::kRunning, progress_of(facts)};
}

StateVerdict judge_ranks(const StateFacts& facts) {
  const auto count = [&](const auto& is_one) { return std::ranges::count_if(facts.ranks, is_one); };
  const auto num_closed =
      count([](const ObservedRank& rank) { return rank.ring.closed.has_value(); });
  const auto num_gone = count([](const ObservedRank& rank) {
    return !rank.ring.closed && rank.process == ProcessState::kGone;
  });
  const auto num_unknown = count([](const ObservedRank& rank) {
    return !rank.ring.closed && rank.process == ProcessState::kUnknown;
  });
  if (num_gone > 0) {
    return has_made_all(facts) ? finished(facts)
                               : StateVerdict{RunState::kCrashed, cause_of(facts)};
  }
  if (num_closed == static_cast<ptrdiff_t>(facts.ranks.size())) {
    if (has_made_all(facts)) return finished(facts);
    const bool is_ill = !comm::is_healthy(facts.findings);
    if (is_ill) return {RunState::kCrashed, cause_of(facts)};
    return {RunState::kStopped, concat("every rank ended in good order; ", progress_of(facts))};
  }
  // Ranks of another host: only what they write tells that they live.
  if (num_unknown > 0 && is_quiet(facts)) {
    return {RunState::kUnknown,
            concat("its processes are on another host, and ", progress_of(facts), " was written ",
                   std::llround(quiet_seconds(facts)), " s ago")};
  }
  return judge_living(facts);
}

}  // namespace

StateVerdict judge_state(const StateFacts& facts) {
  if (facts.story && facts.story->has_ended) {
    if (!facts.story->end_cause.empty()) {
      const bool is_named = !facts.findings.empty() && !comm::is_healthy(facts.findings);
      return {RunState::kCrashed,
              concat("the job ended: ", facts.story->end_cause, "; ", progress_of(facts),
                     is_named ? "; " + facts.findings.front().text : "")};
    }
    if (has_made_all(facts)) return finished(facts);
    return {RunState::kStopped, concat("the job ended; ", progress_of(facts))};
  }
  if (!facts.ranks.empty()) return judge_ranks(facts);
  if (has_made_all(facts)) return finished(facts);
  if (!facts.changed_at) return {RunState::kUnknown, "it has written no metrics"};
  if (!is_quiet(facts)) return {RunState::kRunning, progress_of(facts)};
  return {RunState::kUnknown,
          concat("it has no flight recorder, and ", progress_of(facts), " was written ",
                 std::llround(quiet_seconds(facts)), " s ago")};
}

}  // namespace trireme::watch
