#include "trireme/launch/watchdog/budget.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::launch {

bool Budget::counts(Time used, Time now) const {
  return options_.refill_after.count() == 0 || now - used < options_.refill_after;
}

int Budget::num_left(Time now) const {
  const auto num_used =
      std::ranges::count_if(used_, [&](const Time& used) { return counts(used, now); });
  return std::max(0, options_.max_restarts - static_cast<int>(num_used));
}

RestartDecision Budget::decide(std::span<const Fault> faults, Time now) {
  TRIREME_ASSERT(!faults.empty(), "no fault to decide about");
  std::optional<int64_t> step;
  bool is_warning_only = true;
  // Any fault that no restart mends decides, whatever the others are.
  for (const Fault& fault : faults) {
    if (fault.action == Action::kStop) {
      return {.text = concat("no restart: ", fault.evidence)};
    }
    // The farthest rank stands for all of one death.
    step = std::max(step, fault.step);
    is_warning_only = is_warning_only && fault.action == Action::kWarn;
  }
  // A warning costs no restart.
  if (is_warning_only) return {.text = concat("only a warning: ", faults.front().evidence)};
  const bool has_progressed = step > last_step_;
  // An unknown step is never the same step, so programs without steps are bound by the budget
  // alone.
  deaths_ = step && step == last_step_ ? deaths_ + 1 : 1;
  last_step_ = step;
  if (step && deaths_ >= options_.deaths_at_one_step) {
    return {.text = concat("no restart: workers have died ", deaths_, " times in a row after step ",
                           *step,
                           ", so it would happen again; the last time: ", faults.front().evidence)};
  }
  const int left = num_left(now);
  if (left == 0) {
    return {.text = concat("no restart: all ", options_.max_restarts,
                           " restarts of the budget are "
                           "used (--max-restarts); ",
                           faults.front().evidence)};
  }
  // Restarts that make progress do not add up: a run on flaky hosts goes on at full speed.
  const bool is_soon = !used_.empty() && now - used_.back() < options_.calm_after;
  streak_ = is_soon && !has_progressed ? streak_ + 1 : 0;
  RestartDecision decision{.may_restart = true};
  if (streak_ > 0) {
    // The shift stays defined; most_delay is reached after seven doublings.
    constexpr int kMostDoublings = 30;
    const auto factor = int64_t{1} << std::min(streak_ - 1, kMostDoublings);
    decision.delay = std::min(options_.most_delay, options_.first_delay * factor);
  }
  // Those that came back are forgotten, so the list stays as short as the budget.
  std::erase_if(used_, [&](const Time& used) { return !counts(used, now); });
  used_.push_back(now);
  decision.text = concat("restart after ", decision.delay.count(), " ms, ", left - 1, " of ",
                         options_.max_restarts, " restarts are left: ", faults.front().evidence);
  return decision;
}

void ExcludedHosts::add(const std::string& host, const std::string& reason, Time until) {
  hosts_[host] = {reason, until};
}

bool ExcludedHosts::contains(const std::string& host, Time now) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && now < found->second.second;
}

std::vector<ExcludedHosts::Entry> ExcludedHosts::list(Time now) const {
  std::vector<Entry> entries;
  for (const auto& [host, entry] : hosts_) {
    const auto& [reason, until] = entry;
    if (now >= until) continue;
    entries.push_back({host, reason, std::chrono::ceil<std::chrono::seconds>(until - now)});
  }
  return entries;
}

}  // namespace trireme::launch
