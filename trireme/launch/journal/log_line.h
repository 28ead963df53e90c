// Lines of log files, their severity, judged by their words, and the file of one rank or one agent.
// A line is "TIME EPOCH STEP STREAM| TEXT", for example
//   2026-11-25T07:12:01.123456Z 2 50 err| RuntimeError: boom
// TEXT is what the program wrote, byte by byte, and may be hostile. The files: docs/guide/logs.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/launch/journal/line_file.h"
#include "trireme/launch/journal/time_text.h"

namespace trireme::launch {

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

inline constexpr const char* kLogFolderName = "logs";

struct LogOptions {
  uint64_t max_bytes = uint64_t{64} << 20;  // of a file; there are two, FILE and the older FILE.1
};

// Not thread safe. Never throws: what a full disk keeps out is lost, and a line says how much once
// there is space again.
class LogWriter {
 public:
  // `file`: RUN/logs/ and a name of log_line.h. Opens it with the first line.
  explicit LogWriter(const std::filesystem::path& file, const LogOptions& options = {});

  // Returns whether it was written.
  bool write(const LogLine& line);
  // Counts lines that were lost before they came here.
  void add_lost(int64_t count) { file_.add_lost(count); }

  // Like those of AppendFile.
  std::string take_problem() { return file_.take_problem(); }
  bool take_removed() { return file_.take_removed(); }

 private:
  LogOptions options_;
  AppendFile file_;
};

}  // namespace trireme::launch
