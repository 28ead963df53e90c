// Observes the workers of this host through their flight recorders and /proc. It takes no part in
// their work: nothing is sent, and no worker waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "trireme/launch/watchdog/observation.h"

namespace trireme::launch::inline internal {

struct WatchOptions {
  std::filesystem::path folder{};  // with the rings: the run's recorder/; empty: none is known
  std::string host{};              // the name for this host in observations
  // A rank that has been idle for this long is observed with evidence.
  std::chrono::milliseconds evidence_after{2000};
};

struct WatchedProcess {
  int rank = 0;
  int64_t process_id = 0;
};

// Not thread safe.
class Watch {
 public:
  explicit Watch(WatchOptions options);
  ~Watch();

  // Where the rings are, once a worker has said it ("hello").
  void set_folder(std::filesystem::path folder);

  // One observation for each of `processes`, in their order. What it knows of a process that is no
  // longer among them is forgotten. A ring that cannot be read counts as none. Reads at most one
  // ring per process, 30 us for 4096 records (benchmarks/watchdog.cc), and the folder's names while
  // a ring is missing.
  std::vector<Observation> poll(std::span<const WatchedProcess> processes);

 private:
  class Rank;
  WatchOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace trireme::launch::inline internal
