// Reads the logs of a run's ranks and agents as one, in the order of time.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

  std::filesystem::path run_folder_;
  LogFilter filter_;
  std::map<std::string, std::unique_ptr<Source>> sources_;  // by file name
  std::vector<Source*> heap_;                               // those with a line, the earliest first
  LineReader events_;
  bool has_ended_ = false;
};

}  // namespace trireme::launch::inline internal
