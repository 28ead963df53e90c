// How serious a line of output is, as far as its words tell.
#pragma once

#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch::inline internal {

enum class LogLevel { kInfo, kWarning, kError };
inline constexpr Choice<LogLevel> kLogLevels[] = {
    {"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}};

// The levels of one rank's or agent's lines, in order. Remembers whether a stream is within a
// Python traceback, whose lines are errors up to the exception.
class LogLevels {
 public:
  LogLevel next(LogStream stream, std::string_view text);
  // Whether the line that next() saw last was within a traceback, and another one of it follows.
  bool is_in_traceback(LogStream stream) const {
    return in_traceback_[static_cast<size_t>(stream)];
  }

 private:
  bool in_traceback_[std::size(kLogStreams)] = {};
};

// Without the "[rank3]: " that PyTorch puts before each line of a traceback.
std::string_view without_rank_prefix(std::string_view text);

// Whether a message only says that a peer was lost: not a cause, but what follows from one.
bool is_lost_peer(std::string_view text);

}  // namespace trireme::launch::inline internal
