// Makes log lines of what a process writes to its streams: cuts the output, which comes in pieces,
// into lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/journal/log_line.h"
#include "trireme/launch/journal/time_text.h"

namespace trireme::launch {

inline constexpr size_t kMaxLogLineBytes = 8192;

// Not thread safe. Holds at most one line. A line ends at "\n" or "\r\n", or at a "\r" behind which
// it is written again, as progress bars do; of those at most one per second is kept. Longer lines
// come in several.
class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line_bytes = kMaxLogLineBytes);

  // Returns the lines that ended, without their ends.
  std::vector<std::string> add(std::string_view piece, WallTime now);
  // Returns the rest, when nothing more comes.
  std::vector<std::string> finish();

 private:
  size_t max_line_bytes_;
  std::string held_;
  bool ended_in_return_ = false;  // `held_` is followed by a "\r", perhaps of a "\r\n"
  bool was_cut_ = false;          // a part of the current line has been returned
  WallTime last_update_{};        // the last overwritten line that was kept
};

// Not thread safe. Holds at most one line of each stream.
class LogSplitter {
 public:
  explicit LogSplitter(size_t max_line_bytes = kMaxLogLineBytes);

  // Adds output as it came from a pipe, in any pieces. `step` is the last one that was finished, -1
  // if unknown. Returns the lines that ended.
  std::vector<LogLine> add(LogStream stream, int64_t epoch, int64_t step, std::string_view text,
                           WallTime now = std::chrono::system_clock::now());
  // Ends the lines that are not complete, when the process has ended. Returns them, those of
  // LogStream::kOut first.
  std::vector<LogLine> finish(int64_t epoch, int64_t step,
                              WallTime now = std::chrono::system_clock::now());

 private:
  std::array<LineSplitter, std::size(kLogStreams)> splitters_;
};

}  // namespace trireme::launch
