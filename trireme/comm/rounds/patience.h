// How long a round waits for those that have not come, learned from earlier rounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>

namespace trireme::comm {

struct PatienceOptions {
  std::chrono::milliseconds least{30'000};
  double deviations = 5;
  size_t fewest = 8;  // arrivals that must be known
};

// Not thread safe.
class Patience {
 public:
  explicit Patience(const PatienceOptions& options) : options_(options) {}

  // How much later than the first of its round one has come. The newest 256 count.
  void add(std::chrono::milliseconds lateness);
  // The median of what was added and `deviations` times the median absolute deviation from it, but
  // not below `least`. Nothing while fewer than `fewest` are known.
  std::optional<std::chrono::milliseconds> limit() const;

 private:
  PatienceOptions options_;
  std::deque<std::chrono::milliseconds> known_;
};

}  // namespace trireme::comm
