// One entry of a run's event log: what happened to the job, and what was done about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/launch/journal/time_text.h"

namespace trireme::launch::inline internal {

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
// Throws: ConfigError, which begins with `source`, when it is no event
Event parse_event(std::string_view line, const std::string& source);

}  // namespace trireme::launch::inline internal
