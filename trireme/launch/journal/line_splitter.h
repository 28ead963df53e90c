// Cuts a program's output, which comes in pieces, into lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/journal/time_text.h"

namespace trireme::launch::inline internal {

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
  bool ended_in_return_ = false;  // `held_` is followed by a "\r" of which the end is not known
  bool was_cut_ = false;          // a part of the current line has been returned
  WallTime last_update_{};        // the last overwritten line that was kept
};

}  // namespace trireme::launch::inline internal
