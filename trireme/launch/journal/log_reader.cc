#include "trireme/launch/journal/log_reader.h"

#include <algorithm>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/launch/journal/event_file.h"
#include "trireme/launch/journal/log_file.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kAllBuffersBytes = size_t{128} << 20;
constexpr std::string_view kOlderSuffix = ".1";
// A file server's clock may differ from that of the host whose agent writes.
constexpr std::chrono::minutes kClockMargin(5);

// Whether nothing was written to the file since then.
bool is_older(const std::filesystem::path& path, WallTime since) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return !error && std::chrono::file_clock::to_sys(written) < since - kClockMargin;
}

// The names of the log files; a file that was just rotated may be there only as NAME.1.
std::vector<std::string> log_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename();
    if (name.ends_with(kOlderSuffix)) name.resize(name.size() - kOlderSuffix.size());
    names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  return names;
}

bool has_rank(const LogFilter& filter, int rank) {
  return filter.ranks.empty() || std::ranges::any_of(filter.ranks, [rank](const auto& range) {
           return range.first <= rank && rank <= range.second;
         });
}

bool passes(const LogFilter& filter, const LogEntry& entry) {
  return entry.level >= filter.least_level && (!filter.since || entry.line.time >= *filter.since) &&
         (!filter.matches || filter.matches(entry.line.text));
}

}  // namespace

struct LogReader::Source {
  LineReader lines;
  LogLevels levels{};
  LogEntry entry{};        // the next line
  WallTime last_time{};    // the latest so far: lines keep their order
  bool is_filled = false;  // `entry` is one
};

LogReader::LogReader(std::filesystem::path run_folder, LogFilter filter)
    : run_folder_(std::move(run_folder)),
      filter_(std::move(filter)),
      events_(run_folder_ / kEventFileName,
              {.max_line_bytes = kMaxEventBytes, .with_older = false}) {
  std::error_code ignored;
  TRIREME_CHECK(std::filesystem::is_directory(run_folder_, ignored), run_folder_.string(),
                " is no folder; expected the output.folder of a run");
  TRIREME_CHECK(std::filesystem::is_directory(run_folder_ / kLogFolderName, ignored),
                run_folder_.string(), " has no ", kLogFolderName,
                " folder; expected the folder of a run that was started with `trireme run`, which "
                "keeps the output of every rank");
}

LogReader::~LogReader() = default;

void LogReader::find_files() {
  const std::filesystem::path folder = run_folder_ / kLogFolderName;
  const std::vector<std::string> names = log_names(folder);
  const size_t buffer_bytes = std::clamp(kAllBuffersBytes / (names.size() + 1), size_t{4} << 10,
                                         LineReader::Options{}.buffer_bytes);
  for (const std::string& name : names) {
    const auto rank = rank_of_log(name);
    const auto host = host_of_log(name);
    if (sources_.contains(name) || (!rank && !host) || !has_rank(filter_, rank.value_or(-1))) {
      continue;
    }
    const std::filesystem::path path = folder / name;
    if (filter_.since && is_older(path, *filter_.since)) continue;
    std::filesystem::path older = path;
    older += kOlderSuffix;
    const bool with_older = !filter_.since || !is_older(older, *filter_.since);
    auto source = std::make_unique<Source>(Source{
        .lines = LineReader(path, {.buffer_bytes = buffer_bytes, .with_older = with_older})});
    source->entry.rank = rank.value_or(-1);
    source->entry.host = host.value_or("");
    sources_.emplace(name, std::move(source));
  }
}

// Reads up to the next line that passes.
void LogReader::fill(Source& source) {
  LogEntry& entry = source.entry;
  while (auto text = source.lines.next(!filter_.is_following)) {
    if (auto line = parse_log_line(*text)) {
      entry.line = std::move(*line);
    } else {
      entry.line.text = std::move(*text);
    }
    entry.level = source.levels.next(entry.line.stream, entry.line.text);
    source.last_time = std::max(source.last_time, entry.line.time);
    if (passes(filter_, entry)) {
      source.is_filled = true;
      return;
    }
  }
}

std::optional<LogEntry> LogReader::next() {
  const auto is_later = [](const Source* a, const Source* b) {
    return std::pair(a->last_time, a->entry.rank) > std::pair(b->last_time, b->entry.rank);
  };
  if (heap_.empty()) {
    find_files();
    for (const auto& [name, source] : sources_) {
      fill(*source);
      if (source->is_filled) heap_.push_back(source.get());
    }
    std::ranges::make_heap(heap_, is_later);
  }
  if (heap_.empty()) return std::nullopt;
  std::ranges::pop_heap(heap_, is_later);
  Source& source = *heap_.back();
  LogEntry entry = source.entry;
  source.is_filled = false;
  fill(source);
  if (source.is_filled) {
    std::ranges::push_heap(heap_, is_later);
  } else {
    heap_.pop_back();
  }
  return entry;
}

bool LogReader::has_ended() {
  while (const auto line = events_.next()) {
    if (!may_be_event(*line)) continue;
    try {
      const EventKind kind = parse_event(*line, kEventFileName).kind;
      if (kind == EventKind::kEnd) has_ended_ = true;
      if (kind == EventKind::kStart) has_ended_ = false;
    } catch (const ConfigError&) {  // a damaged line says nothing
    }
  }
  return has_ended_;
}

}  // namespace trireme::launch::inline internal
