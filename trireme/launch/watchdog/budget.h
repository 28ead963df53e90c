// How often the workers of a run may be started again, and when. Pure: time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/watchdog/classify.h"

namespace trireme::launch {

struct BudgetOptions {
  int max_restarts = 10;
  // A restart that has been used comes back after this long; zero: never.
  std::chrono::seconds refill_after{3600};
  // A restart is at once. Each that follows within `calm_after` of the one before, with no new step
  // finished between them, waits: this long, then twice as long each time.
  std::chrono::milliseconds first_delay{500};
  std::chrono::milliseconds most_delay{60000};
  std::chrono::seconds calm_after{60};
  // So many deaths in a row at one step stop the run: it would die there again. Of a program that
  // does not say its step nobody knows that, and only max_restarts counts.
  int deaths_at_one_step = 3;
};

struct RestartDecision {
  bool may_restart = false;
  std::chrono::milliseconds delay{0};  // before it
  std::string text{};                  // why, one line
};

class Budget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Budget(const BudgetOptions& options = {}) : options_(options) {}

  // Decides about faults that belong together, as classify_exits() or classify() return them, and
  // if they may be answered with a restart, counts one. One call is one death, however many workers
  // died. Refuses faults with Action::kStop, a spent budget, and repeated deaths at one step.
  // Warnings cost nothing. faults: at least one.
  RestartDecision decide(std::span<const Fault> faults, Time now);
  int num_left(Time now) const;

 private:
  bool counts(Time used, Time now) const;

  BudgetOptions options_;
  std::vector<Time> used_;  // when restarts were granted, oldest first
  int streak_ = 0;  // restarts before the last one, each soon after the one before and in vain
  std::optional<int64_t> last_step_;
  int deaths_ = 0;  // in a row at last_step_
};

// Hosts that may not take part for a while.
class ExcludedHosts {
 public:
  using Time = Budget::Time;
  struct Entry {
    std::string host;
    std::string reason;
    std::chrono::seconds left{};
  };

  void add(const std::string& host, const std::string& reason, Time until);
  void remove(const std::string& host) { hosts_.erase(host); }
  bool contains(const std::string& host, Time now) const;
  std::vector<Entry> list(Time now) const;  // by name

 private:
  std::map<std::string, std::pair<std::string, Time>> hosts_;  // host -> reason, until when
};

}  // namespace trireme::launch
