// A coordinator with hosts and times that a test makes up.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/membership/coordinator.h"

namespace trireme::launch {

using namespace std::chrono_literals;

// Agents that obey the plan at once, in made-up time.
class MadeUpJob {
 public:
  explicit MadeUpJob(CoordinatorOptions options = {}) : coordinator_(with_program(options), now_) {}

  // Index of the host.
  size_t join(const std::string& name, int num_workers = 1) {
    SeenHost host;
    host.report = {.id = concat(name, "-", hosts_.size()),
                   .name = name,
                   .address = concat("10.0.0.", hosts_.size()),
                   .port = 1000 + static_cast<int>(hosts_.size()),
                   .num_workers = num_workers,
                   .program = "steps = 1",
                   .link_address = concat("10.0.0.", hosts_.size()),
                   .link_port = 2000};
    host.seen = now_;
    hosts_.push_back(host);
    is_silent_.push_back(false);
    return hosts_.size() - 1;
  }

  // Time passes; hosts that are not silent report, and obey.
  void pass(std::chrono::milliseconds time) {
    for (auto left = time; left > 0ms; left -= 100ms) {
      now_ += std::min<std::chrono::milliseconds>(left, 100ms);
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if (is_silent_[i]) continue;
        hosts_[i].seen = now_;
        obey(hosts_[i].report);
      }
      decide();
    }
  }

  void decide() {
    coordinator_.decide(hosts_, now_);
    for (Event& event : coordinator_.take_events()) events_.push_back(std::move(event));
  }

  // From now on `from` does not reach `to`.
  void cut(size_t from, size_t to) { cuts_.emplace_back(from, to); }
  void mend() { cuts_.clear(); }
  void silence(size_t host) { is_silent_[host] = true; }
  void wake(size_t host) { is_silent_[host] = false; }
  HostReport& report(size_t host) { return hosts_[host].report; }
  WorkerReport& worker(size_t host, size_t index = 0) { return report(host).workers[index]; }
  void fail(size_t host, int code, int signal = 0) {
    worker(host).state = WorkerState::kFailed;
    worker(host).code = code;
    worker(host).signal = signal;
    worker(host).message = "it failed";
  }
  void finish_step(int64_t step) {
    for (SeenHost& host : hosts_) {
      for (WorkerReport& worker : host.report.workers) {
        worker.step = step;
        if (worker.first_step == 0) worker.first_step = step;
      }
    }
  }
  const Plan& plan() const { return coordinator_.plan(); }
  bool is_over() const { return coordinator_.is_over(hosts_, now_); }
  int64_t count(EventKind kind) const {
    return std::ranges::count_if(events_, [&](const Event& event) { return event.kind == kind; });
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  static CoordinatorOptions with_program(CoordinatorOptions options) {
    options.program = "steps = 1";
    options.job = "job";
    return options;
  }

  void obey(HostReport& report) {
    const Plan& plan = coordinator_.plan();
    const PlannedHost* place = plan.find(report.id);
    answer_links(report);
    if (plan.phase == Phase::kRun && report.epoch != plan.epoch) {
      report.epoch = plan.epoch;
      report.workers.clear();
      for (int i = 0; place != nullptr && i < place->num_ranks; ++i) {
        report.workers.push_back({.rank = place->first_rank + i});
      }
    } else if (plan.phase == Phase::kLeave) {
      report.epoch = plan.epoch;
      for (WorkerReport& worker : report.workers) {
        if (worker.state == WorkerState::kRunning) worker.state = WorkerState::kLeft;
      }
    } else if (plan.phase == Phase::kStop) {
      report.is_ending = true;
      for (WorkerReport& worker : report.workers) {
        if (worker.state != WorkerState::kFailed) worker.state = WorkerState::kDone;
      }
    }
  }

  void answer_links(HostReport& report) {
    const Plan& plan = coordinator_.plan();
    const bool is_asked = std::ranges::count(plan.linked, report.id, &LinkedHost::id) > 0;
    if (!is_asked || report.links_known >= plan.links_asked) return;
    report.links_known = plan.links_asked;
    report.unreached.clear();
    for (const auto& [from, to] : cuts_) {
      if (hosts_[from].report.id == report.id) {
        report.unreached.push_back({hosts_[to].report.id, "no answer"});
      }
    }
  }

  Clock::time_point now_ = Clock::time_point() + 1h;
  Coordinator coordinator_;
  std::vector<SeenHost> hosts_;
  std::vector<bool> is_silent_;
  std::vector<std::pair<size_t, size_t>> cuts_;
  std::vector<Event> events_;
};

}  // namespace trireme::launch
