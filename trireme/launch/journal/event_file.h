// A run's event log: RUN/events.jsonl, one JSON object a line (event.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/launch/journal/append_file.h"
#include "trireme/launch/journal/event.h"

namespace trireme::launch::inline internal {

inline constexpr const char* kEventFileName = "events.jsonl";

// Not thread safe. A line is complete or lost: readers never see half of one that this object
// wrote and went on from.
class EventWriter {
 public:
  // Goes on behind the events that are there.
  // Throws: Error when the file cannot be opened
  explicit EventWriter(const std::filesystem::path& run_folder);

  // Fills in the time when the event has none. Never throws. What a full disk keeps out is lost;
  // once there is space again, an event "gap" says how many were.
  void write(Event event);

  // A line for the user about events that could not be written: once per outage, otherwise "".
  std::string take_problem() { return file_.take_problem(); }

 private:
  AppendFile file_;
};

struct EventLog {
  std::vector<Event> events{};  // in the order of the file
  int64_t num_unreadable = 0;   // lines that are no event: cut short, damaged, of a newer version
  bool is_cut = false;          // the file is larger than what was read
};

inline constexpr uint64_t kMaxEventFileBytes = uint64_t{64} << 20;
inline constexpr size_t kMaxEvents = size_t{1} << 18;
inline constexpr int64_t kMaxUnreadableEvents = 10'000;

bool has_events(const std::filesystem::path& run_folder);

// Reads the events of a run, also while it writes them. Reads at most kMaxEventFileBytes,
// kMaxEvents and kMaxUnreadableEvents.
// Throws: Error when there is no such file or it cannot be read
EventLog read_events(const std::filesystem::path& run_folder);

}  // namespace trireme::launch::inline internal
