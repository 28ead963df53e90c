// An agent's observation of one worker at one moment, small enough for every heartbeat.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/recorder/ring.h"

namespace trireme::launch {

// Steps are compared in windows of this many: 1 to 20, 21 to 40, ...
inline constexpr int64_t kWindowSteps = 20;
inline constexpr size_t kMaxWindows = 5;

// The medians of one rank's steps in a window.
struct StepWindow {
  int64_t first_step = 1;  // the same windows on every rank
  std::chrono::nanoseconds computing{};
  std::chrono::nanoseconds waiting{};  // for communication
  bool operator==(const StepWindow&) const = default;
};

struct Observation {
  int rank = -1;
  std::string host{};
  int64_t process_id = 0;
  // The letter of /proc/PID/stat: R runs, S sleeps, D waits for a disk or a network file system,
  // T is stopped, t is traced, Z has ended; '?': no such process.
  char process_state = '?';
  bool has_ring = false;            // false: the program keeps no flight recorder, or not yet
  int64_t step = 0;                 // the last finished one that the ring shows; 0: none
  bool is_in_step = false;          // false: between steps (it evaluates, saves, loads), or unknown
  uint64_t num_calls = 0;           // issued in all groups
  std::string last_call{};          // "all_reduce #5 of group data"; "": none
  bool is_in_call = false;          // last_call has not ended
  std::chrono::nanoseconds idle{};  // since a call or a step began or ended; without a ring 0
  double cores_used = 0;            // CPU time divided by wall time, over the last 200 ms or more
  int stage = 0;                    // of the pipeline; only ranks of one stage do the same work
  std::vector<StepWindow> windows{};  // the latest complete ones, at most kMaxWindows, oldest first
  // The ring, cut to what a diagnosis needs. Only when the rank has been idle for a while.
  std::optional<comm::ObservedRank> evidence{};
};

// JSON for a heartbeat: about 300 bytes per rank, with evidence a few thousand.
std::string to_json(const std::vector<Observation>& observations);
// source: names the text in errors.
// Throws: ConfigError, one line, when it is not such a text or exceeds 4 MiB, 4096 observations or
//         a million members of groups
std::vector<Observation> parse_observations(std::string_view text, const std::string& source);

}  // namespace trireme::launch
