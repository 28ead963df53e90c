// Writes the log file of one rank or one agent.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/journal/append_file.h"
#include "trireme/launch/journal/line_splitter.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch::inline internal {

inline constexpr const char* kLogFolderName = "logs";

struct LogOptions {
  uint64_t max_bytes = uint64_t{64} << 20;  // of a file; there are two, FILE and the older FILE.1
  size_t max_line_bytes = kMaxLogLineBytes;
};

// Not thread safe. Never throws while it writes: what a full disk keeps out is lost, and a line
// says how much once there is space again.
class LogWriter {
 public:
  // `file`: RUN/logs/ and a name of log_line.h. Opens it with the first line.
  explicit LogWriter(const std::filesystem::path& file, const LogOptions& options = {});

  // Adds output as it came from a pipe, in any pieces. `step` is the last one that was finished.
  // Returns the lines that ended, for FirstErrors.
  std::vector<std::string> write(LogStream stream, int64_t epoch, int64_t step,
                                 std::string_view text,
                                 WallTime now = std::chrono::system_clock::now());
  // Ends the lines that are not complete, when the process has ended. Returns them, those of
  // LogStream::kOut first.
  std::vector<std::string> finish(int64_t epoch, int64_t step,
                                  WallTime now = std::chrono::system_clock::now());

  // A line for the user about output that could not be kept: once per outage, otherwise "".
  std::string take_problem() { return file_.take_problem(); }

 private:
  void append(const LogLine& line);

  LogOptions options_;
  AppendFile file_;
  std::array<LineSplitter, std::size(kLogStreams)> splitters_;
};

}  // namespace trireme::launch::inline internal
