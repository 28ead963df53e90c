// Reads the logs of a run's ranks and agents as one, in the order of time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/journal/line_reader.h"
#include "trireme/launch/journal/log_level.h"

namespace trireme::launch::inline internal {

// A line and where it comes from.
struct LogEntry {
  LogLine line{};
  LogLevel level = LogLevel::kInfo;
  int rank = -1;       // -1: an agent's
  std::string host{};  // of an agent
};

struct LogFilter {
  std::vector<std::pair<int, int>> ranks{};  // from, to; empty: all ranks and agents
  std::optional<WallTime> since{};
  LogLevel least_level = LogLevel::kInfo;
  std::function<bool(std::string_view)> matches{};  // of a text; null: all
};

// Not thread safe. Memory is bounded by the number of files, whatever their size. Lines of one file
// keep their order, even if its host's clock was set back. A line without a time (a writer was
// killed, or another program wrote it) gets that of the line before.
class LogReader {
 public:
  // Throws: ConfigError when there is no such run, or when it has no logs
  LogReader(std::filesystem::path run_folder, LogFilter filter);
  ~LogReader();

  // The next line that passes the filter; empty at the end of what is there now. When the run goes
  // on, call it again later: it finds new lines and new files.
  std::optional<LogEntry> next();

  // Whether the run's event log says that it has ended and not started again.
  bool has_ended();

 private:
  struct Source;
  void find_files();
  std::optional<LogEntry> read(Source& source) const;

  std::filesystem::path run_folder_;
  LogFilter filter_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<Source*> heap_;  // those with a line, the earliest first
  LineReader events_;
  bool has_ended_ = false;
};

// "3", "3,5-7" as LogFilter::ranks.
// Throws: ConfigError; `what` names the option
std::vector<std::pair<int, int>> parse_ranks(std::string_view text, std::string_view what);

// A function that finds an extended regular expression (POSIX, as `grep -E`) in a text. It takes no
// more than memory of the pattern's size, whatever the text.
// Throws: ConfigError for a bad pattern or one above kMaxPatternBytes; `what` names the option
inline constexpr size_t kMaxPatternBytes = 1024;
std::function<bool(std::string_view)> parse_pattern(const std::string& pattern,
                                                    std::string_view what);

}  // namespace trireme::launch::inline internal
