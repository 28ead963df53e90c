// Selects the injections that are due. Pure: time and the run's state are arguments.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/launch/inject/injection.h"

namespace trireme::launch {

// The run at one moment.
struct RunMoment {
  std::chrono::milliseconds since_start{0};
  std::map<int, int64_t> steps{};      // rank -> its last finished step
  std::map<int, std::string> hosts{};  // rank -> its host
  std::vector<std::string> agents{};   // hosts with a live agent, also those without a rank
  bool is_saving = false;
  bool is_recovering = false;
};

class Injector {
 public:
  // `seed` draws targets that are left open and moments of Trigger::kWithin.
  explicit Injector(std::vector<Injection> injections, uint64_t seed = 1);

  // The injections that are due now and have not been returned before, in their order. Rank and
  // host are filled in as far as the target has them; for a rank also its host. One whose rank or
  // host is not there waits for it. A host that joins need not be there.
  std::vector<Injection> due(const RunMoment& moment);
  size_t num_left() const { return waiting_.size(); }

 private:
  bool is_due(const Injection& injection, const RunMoment& moment) const;
  bool choose_target(Injection& injection, const RunMoment& moment);
  size_t draw(size_t below);

  std::vector<Injection> waiting_;
  uint64_t seed_;
  uint64_t num_drawn_ = 0;
};

}  // namespace trireme::launch
