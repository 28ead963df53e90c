// A run's event log: what happened to the job, and what was done about it. RUN/events.jsonl has one
// JSON object a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/launch/journal/line_file.h"
#include "trireme/launch/journal/time_text.h"

namespace trireme::launch {

enum class EventKind {
  kStart,
  kFailure,
  kDecision,
  kRecovery,
  kJoin,
  kLeave,
  kNotice,
  kInject,
  kGap,
  kEnd
};

// story.h computes the time lost from these events. What it needs of each:
inline constexpr Choice<EventKind> kEventKinds[] = {
    {"start", EventKind::kStart},        // an epoch; `step` is the newest finished one before it
    {"failure", EventKind::kFailure},    // `cause`; `step` is the newest finished one
    {"decision", EventKind::kDecision},  // what the leader does about it
    {"recovery", EventKind::kRecovery},  // an epoch has finished its first step, `step`, and so
                                         // went on from the one before; `seconds` after the
                                         // failure (or after the start, in the first)
    {"join", EventKind::kJoin},          // a host
    {"leave", EventKind::kLeave},        // a host, as it was asked to
    {"notice", EventKind::kNotice},      // preemption, or something that only needs attention
    {"inject", EventKind::kInject},      // a drill: this failure was asked for
    {"gap", EventKind::kGap},            // lines were lost, for example on a full disk
    {"end", EventKind::kEnd},            // of the job; `cause` is "" when it is done
};

struct Event {
  WallTime time{};
  EventKind kind = EventKind::kNotice;
  int64_t epoch = 0;    // 0: before the first
  int64_t step = -1;    // -1: unknown
  std::string host{};   // "": none
  int rank = -1;        // -1: none
  double seconds = 0;   // 0: says nothing about a duration
  double uptime = 0;    // seconds since the leader began, by a clock that nobody sets; 0: unknown
  std::string cause{};  // a word or two: "killed", "crashed", "hung", "host lost"
  std::string text{};   // one line for people
};

inline constexpr size_t kMaxEventBytes = size_t{64} << 10;  // of a line
inline constexpr size_t kMaxEventText = 4096;               // of `text`

// One line of JSON with its newline. Members without a meaning are left out. Cuts `text`, `host`
// and `cause`, and replaces bytes that are not UTF-8.
std::string to_json_line(const Event& event);

// Whether parse_event() may take the line. Costs no exception, for files with many other lines.
bool may_be_event(std::string_view line);

// Reads one line. Skips keys that it does not know, since another version may have written them.
// Throws: ConfigError, which begins with `source`, when the line is not an event
Event parse_event(std::string_view line, const std::string& source);

inline constexpr const char* kEventFileName = "events.jsonl";

// Not thread safe. A line is complete or lost: readers never see half of one that this object
// wrote and went on from.
class EventWriter {
 public:
  // Appends to existing events. Opens the file at the first event.
  explicit EventWriter(const std::filesystem::path& run_folder);

  // Fills in the time when the event has none. Never throws. What a full disk keeps out is lost;
  // once there is space again, an event "gap" says how many were. Returns whether it was written.
  bool write(Event event);
  // Counts events that were lost before they came here.
  void add_lost(int64_t count) { file_.add_lost(count); }

  // Like those of AppendFile.
  std::string take_problem() { return file_.take_problem(); }
  bool take_removed() { return file_.take_removed(); }

 private:
  AppendFile file_;
};

struct EventLog {
  std::vector<Event> events{};  // in the order of the file
  int64_t num_unreadable = 0;   // lines that are not events: cut short, damaged, of a newer version
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

// The start times of a run's epochs, from its events. Epochs of one job count up. Those of a job
// that goes on with the run begin at 1 again, so they are compared within a job only. Not thread
// safe.
class EpochStarts {
 public:
  // In the order of the event log. Ignores all other events.
  void add(const Event& event);
  // Whether a later epoch of the same job had begun before `time`. Times are those of the leader's
  // clock and of the host that wrote the line.
  bool is_over(int64_t epoch, WallTime time) const;

 private:
  std::vector<std::pair<WallTime, int64_t>> starts_;  // in the order of time; 0: a job's end
};

}  // namespace trireme::launch
