// A file that grows by whole lines, although disks fill up and writers are killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trireme/base/file/descriptor.h"

namespace trireme::launch::inline internal {

// Not thread safe. Several processes may append to one file: each line is one write with O_APPEND.
// A last line that a killed writer left incomplete is closed before anything follows it.
class AppendFile {
 public:
  // Opens nothing yet.
  explicit AppendFile(std::filesystem::path path);

  // Opens the file, and makes it and its folder when they are missing.
  // Throws: Error with the path and the reason
  void open();

  // Appends `line`, which ends in a newline, and opens the file if it is not open. Never throws: a
  // line that cannot be written is lost and counted. Returns whether it was written. `line` may
  // begin with a line about earlier losses; together they count as one.
  bool append(std::string_view line);

  // Lines lost since the last call with take.
  int64_t num_lost() const { return num_lost_; }
  int64_t take_lost();
  // Why the last line was lost: "cannot write PATH: No space left on device". Each outage is
  // reported once; "" when there is nothing new.
  std::string take_problem();

  // Closes the file and calls it PATH.1, in the place of an older one. The next line begins a new
  // file. Never throws.
  void rotate();
  uint64_t num_bytes() const { return num_bytes_; }  // as far as this object knows

  const std::filesystem::path& path() const { return path_; }

 private:
  bool try_open();
  bool fail();

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t num_bytes_ = 0;
  bool is_torn_ = false;  // the last line lacks its newline
  bool is_failing_ = false;
  int64_t num_lost_ = 0;
  std::string problem_;
};

}  // namespace trireme::launch::inline internal
