// Follows a file of lines that another process writes: only what is new is read. The file may be
// cut, replaced, damaged, or gone at any moment; nothing here throws or writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/file/file.h"
#include "trireme/launch/journal/file_place.h"

namespace trireme::watch {

// Not thread safe. Holds no file open between reads, and of the file no more than one line. A last
// line without its newline waits until it is complete.
class Tail {
 public:
  struct Options {
    size_t most_line_bytes = size_t{8} << 20;  // a longer line is left out, and counted
  };
  struct Progress {
    bool is_reset = false;  // what was read before no longer counts
    bool has_more = false;  // the file goes on behind `most_bytes`
  };

  explicit Tail(std::filesystem::path path) : Tail(std::move(path), Options{}) {}
  Tail(std::filesystem::path path, const Options& options);

  // Reads at most `most_bytes` and gives on_line each line without its newline. If the file was cut
  // or replaced it is read from its beginning, and on_reset comes before the lines. A file that has
  // gone changes nothing: what was read stays.
  Progress update(uint64_t most_bytes, const std::function<void(std::string_view)>& on_line,
                  const std::function<void()>& on_reset);

  // Lines that were too long, since the last reset.
  int64_t num_too_long() const { return num_too_long_; }
  uint64_t offset() const { return place_.offset(); }
  // When the file last changed, by the clock of its host; nothing before it was seen.
  std::optional<double> changed_at() const { return changed_at_; }

 private:
  struct Look {
    FileIdentity identity{};
    uint64_t num_bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const Look&) const = default;
  };

  void forget();
  void take(std::string_view bytes, const std::function<void(std::string_view)>& on_line);

  std::filesystem::path path_;
  Options options_;
  std::optional<Look> last_look_{};  // when all of it was read
  std::optional<double> changed_at_{};
  launch::FilePlace place_{};
  std::string held_{};  // of a line that goes on
  bool is_skipping_ = false;
  int64_t num_too_long_ = 0;
};

}  // namespace trireme::watch
