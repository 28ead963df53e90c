// Injected faults of a job: when they are due, which the leader decides, and carrying them out on
// each host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/inject/injector.h"
#include "trireme/launch/inject/performer.h"
#include "trireme/launch/membership/coordinator.h"
#include "trireme/launch/membership/rank_plan.h"

namespace trireme::launch {

// The leader's part. Not thread safe.
class DrillSchedule {
 public:
  DrillSchedule(std::vector<Injection> injections, uint64_t seed, Clock::time_point start)
      : injector_(std::move(injections), seed), start_(start) {}

  // The injections that are due now, with rank and host.
  std::vector<Injection> due(const Plan& plan, const std::vector<SeenHost>& hosts,
                             Clock::time_point now);

 private:
  Injector injector_;
  Clock::time_point start_;
};

// The targets of a drill on this host.
struct DrillTargets {
  std::function<std::vector<int64_t>(int rank)> process_ids;  // of that rank; -1: of all workers
  std::function<void(int rank, int code)> end_with;           // a worker, as if with this code
  std::function<void()> leave;                                // this host leaves
};

// A host's part. Not thread safe. The destructor ends faults that are still there.
class DrillPerformer {
 public:
  explicit DrillPerformer(std::string host) : host_(std::move(host)) {}

  // Sets the folder in which to fill the disk; call before the first injection.
  void set_folder(std::filesystem::path folder) { folder_ = std::move(folder); }
  // Begins the plan's injections that are for this host and are new, and ends those whose time is
  // over. Returns what was done, a line each.
  std::vector<std::string> perform(const Plan& plan, const DrillTargets& targets,
                                   Clock::time_point now);

 private:
  std::string begin(const Injection& injection, const DrillTargets& targets,
                    std::chrono::milliseconds now);

  std::string host_;
  std::filesystem::path folder_;
  std::optional<Performer> performer_;  // once there is an injection
  int64_t num_seen_ = 0;                // of the plan's injections
};

}  // namespace trireme::launch
