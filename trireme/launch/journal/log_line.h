// One line of a log file: "TIME EPOCH STEP STREAM| TEXT", for example
//   2026-11-25T07:12:01.123456Z 2 50 err| RuntimeError: boom
// TEXT is what the program wrote, byte by byte, and may be hostile. docs/logs.md describes the
// files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/launch/journal/time_text.h"

namespace trireme::launch::inline internal {

enum class LogStream { kOut, kErr, kAgent };
inline constexpr Choice<LogStream> kLogStreams[] = {
    {"out", LogStream::kOut},
    {"err", LogStream::kErr},
    {"agent", LogStream::kAgent},  // what an agent says itself
};

struct LogLine {
  WallTime time{};
  int64_t epoch = 0;
  int64_t step = -1;  // last finished step; -1: unknown
  LogStream stream = LogStream::kOut;
  std::string text{};  // without the newline
};

// With its newline. Line ends within the text become spaces.
std::string to_text(const LogLine& line);

// Reads a line without its newline. Empty when it is none.
std::optional<LogLine> parse_log_line(std::string_view line);

// "rank-00003.log"; and the rank of such a name, if it is one.
std::string rank_log_name(int rank);
std::optional<int> rank_of_log(std::string_view file_name);
// "agent-<host>.log". Characters that a file name should not have become "_". The second returns
// the host as the name has it.
std::string agent_log_name(std::string_view host);
std::optional<std::string> host_of_log(std::string_view file_name);

}  // namespace trireme::launch::inline internal
