// Files that grow by whole lines, although disks fill up and writers are killed, and reading them
// while another process appends, line by line, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/file/file.h"
#include "trireme/launch/journal/file_place.h"

namespace trireme::launch {

// Not thread safe. Several processes may append to one file: each line is one write with O_APPEND.
// A last line that a killed writer left incomplete is closed before anything follows it.
class AppendFile {
 public:
  // Opens nothing yet.
  explicit AppendFile(std::filesystem::path path);

  // Appends `line`, which ends in a newline. Opens the file if it is not open, and makes it and its
  // folder when they are missing, also when somebody has removed them. Never throws: a line that
  // cannot be written is lost and counted. Returns whether it was written. `line` may begin with a
  // line about earlier losses; together they count as one.
  bool append(std::string_view line);

  // Lines lost since the last call with take.
  int64_t num_lost() const { return num_lost_; }
  int64_t take_lost();
  // Counts lines that were lost before they came here.
  void add_lost(int64_t count) { num_lost_ += count; }
  // Why the last line was lost: "cannot write PATH: No space left on device". Each outage is
  // reported once; "" when there is nothing new.
  std::string take_problem();
  // Whether somebody has removed the file, and what it had, since the last call.
  bool take_removed();

  // Closes the file and calls it PATH.1, in the place of an older one. The next line begins a new
  // file. Never throws.
  void rotate();
  uint64_t num_bytes() const { return num_bytes_; }  // as far as this object knows

  const std::filesystem::path& path() const { return path_; }

 private:
  bool try_open();
  bool is_removed() const;
  bool fail();

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t num_bytes_ = 0;
  bool is_torn_ = false;  // the last line lacks its newline
  bool is_failing_ = false;
  bool was_removed_ = false;
  int64_t num_lost_ = 0;
  std::string problem_;
};

// Not thread safe. Holds no file open between reads, so that thousands can be read side by side.
// Follows the file when it is rotated (AppendFile::rotate()): reads PATH.1 first, to its end, then
// PATH.
class LineReader {
 public:
  struct Options {
    size_t buffer_bytes = size_t{64} << 10;
    size_t max_line_bytes = size_t{16} << 10;  // longer lines come in pieces
    bool with_older = true;                    // begin with PATH.1
  };
  explicit LineReader(std::filesystem::path path) : LineReader(std::move(path), Options{}) {}
  LineReader(std::filesystem::path path, const Options& options);

  // The next line without its newline; empty at the end of what is there now. A last line without a
  // newline is returned only if `is_final`.
  std::optional<std::string> next(bool is_final = false);

  uint64_t num_bytes_read() const { return num_bytes_read_; }

 private:
  enum class Place { kCurrent, kOlder, kGone };

  bool refill();
  bool read_from(const std::filesystem::path& path);
  Place place_of_file() const;

  std::filesystem::path path_;
  Options options_;
  std::string buffer_;
  size_t begin_ = 0;               // of the unread part of buffer_
  FilePlace place_{};              // in the file that is being read
  bool has_passed_older_ = false;  // PATH.1 was read to its end
  uint64_t num_bytes_read_ = 0;
};

}  // namespace trireme::launch
