// How often the workers of a run may be started again, and when. Pure: time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/watchdog/classify.h"

namespace trireme::launch::inline internal {

struct BudgetOptions {
  int max_restarts = 10;
  // A restart that has been used comes back after this long; zero: never.
  std::chrono::seconds refill_after{3600};
  // The pause before a restart doubles with each restart in use, from the first.
  std::chrono::milliseconds first_delay{0};     // of the first restart
  std::chrono::milliseconds second_delay{500};  // then doubled
  std::chrono::milliseconds most_delay{60000};
  int deaths_at_one_step = 3;
};

struct RestartDecision {
  bool may_restart = false;
  std::chrono::milliseconds delay{0};
  std::string text{};  // why, one line
};

class Budget {
 public:
  explicit Budget(const BudgetOptions& options = {});

  // Decides about faults that happened together, of classify_exits() or classify(), and counts one
  // restart if they may be answered with one. Refuses when one has Action::kStop, when the budget
  // is spent, and when workers have died at one step three times in a row.
  RestartDecision decide(std::span<const Fault> faults, std::chrono::steady_clock::time_point now);
  int num_left(std::chrono::steady_clock::time_point now) const;

 private:
  BudgetOptions options_;
  std::vector<std::chrono::steady_clock::time_point> used_;
  int64_t last_step_ = -1;
  int deaths_ = 0;  // in a row at last_step_
};

// Hosts that may not take part for a while.
class ExcludedHosts {
 public:
  void add(const std::string& host, const std::string& reason,
           std::chrono::steady_clock::time_point until);
  bool contains(const std::string& host, std::chrono::steady_clock::time_point now) const;
  struct Entry {
    std::string host;
    std::string reason;
    std::chrono::seconds left;
  };
  std::vector<Entry> list(std::chrono::steady_clock::time_point now) const;
  void remove(const std::string& host);

 private:
  std::map<std::string, std::pair<std::string, std::chrono::steady_clock::time_point>, std::less<>>
      hosts_;
};

}  // namespace trireme::launch::inline internal
