// Reads the logs of a run's ranks and agents as one, in the order of time, through a filter that is
// parsed from the words of a command line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/launch/journal/event.h"
#include "trireme/launch/journal/line_file.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {

// A line and where it comes from.
struct LogEntry {
  LogLine line{};
  LogLevel level = LogLevel::kInfo;
  int rank = -1;       // -1: an agent's
  std::string host{};  // of an agent
  // True for a rank's line that its agent read after a later epoch had begun, by the hosts' clocks.
  // The rank may have written it for an epoch that was over.
  bool is_stale = false;
};

struct LogFilter {
  std::vector<std::pair<int, int>> ranks{};  // from, to; empty: all ranks and agents
  std::optional<WallTime> since{};
  LogLevel least_level = LogLevel::kInfo;
  std::function<bool(std::string_view)> matches{};  // of a text; null: all
  bool is_following = false;  // wait for the rest of a last line that has no newline yet
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

  // Log files found so far that the filter's ranks and time let through.
  size_t num_files() const { return sources_.size(); }

  // Whether the run's event log says that it has ended and not started again.
  bool has_ended();

 private:
  struct Source;
  void find_files();
  void fill(Source& source);
  void read_events();

  std::filesystem::path run_folder_;
  LogFilter filter_;
  std::map<std::string, std::unique_ptr<Source>> sources_;  // by file name
  std::vector<Source*> heap_;                               // those with a line, the earliest first
  LineReader events_;
  EpochStarts starts_;
  bool has_ended_ = false;
};

// "3", "3,5-7" as LogFilter::ranks.
// Throws: ConfigError; `what` names the option
std::vector<std::pair<int, int>> parse_ranks(std::string_view text, std::string_view what);

inline constexpr size_t kMaxPatternBytes = 1024;

// A function that finds an extended regular expression (POSIX, as `grep -E`) in a text. It has no
// back-references, and bounded repetitions, so that no text takes long or much memory.
// Throws: ConfigError for a bad pattern; `what` names the option
std::function<bool(std::string_view)> parse_pattern(const std::string& pattern,
                                                    std::string_view what);

}  // namespace trireme::launch
