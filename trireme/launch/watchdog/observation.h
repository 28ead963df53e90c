// What an agent sees of one worker at one moment, small enough to go with each heartbeat.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/recorder/ring.h"

namespace trireme::launch::inline internal {

// Steps first_step to first_step + kWindowSteps - 1 of one rank: medians over the steps.
inline constexpr int64_t kWindowSteps = 20;
struct StepWindow {
  int64_t first_step = 0;  // a multiple of kWindowSteps, plus 1: the same windows on every rank
  std::chrono::nanoseconds computing{};
  std::chrono::nanoseconds waiting{};  // for communication
  bool operator==(const StepWindow&) const = default;
};
inline constexpr size_t kMaxWindows = 3;

struct Observation {
  int rank = -1;
  std::string host{};
  int64_t process_id = 0;
  // The letter of /proc/PID/stat: R runs, S sleeps, D waits for a disk or a network file system,
  // T is stopped, t is traced, Z has ended; '?': no such process.
  char process_state = '?';
  bool has_ring = false;            // false: the program keeps no flight recorder, or not yet
  int64_t step = 0;                 // the last finished one; 0: none
  bool is_in_step = false;          // false: between steps (it evaluates, saves, loads), or unknown
  uint64_t num_calls = 0;           // issued in all groups
  std::string last_call{};          // "all_reduce #5 of group data"
  bool is_in_call = false;          // last_call has not ended
  std::chrono::nanoseconds idle{};  // since a call or a step began or ended; without a ring 0
  double cores_used = 0;            // CPU time divided by wall time, since the poll before
  int stage = 0;                    // of the pipeline; only ranks of one stage do the same work
  std::vector<StepWindow> windows{};  // the latest complete ones, oldest first
  // The ring, cut to what a diagnosis needs. Only when the rank has been idle for a while.
  std::optional<comm::ObservedRank> evidence{};
};

// Kept small: about 200 bytes, with evidence a few thousand.
std::string to_json(const std::vector<Observation>& observations);
// source: names the text in errors. At most 4 MiB.
// Throws: ConfigError, one line
std::vector<Observation> parse_observations(std::string_view text, const std::string& source);

}  // namespace trireme::launch::inline internal
