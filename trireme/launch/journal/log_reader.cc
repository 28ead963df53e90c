#include "trireme/launch/journal/log_reader.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <system_error>

#include <regex.h>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {
namespace {

// glibc expands repetitions, so their product is memory and time.
constexpr int64_t kMaxRepetitions = 1000;

// Takes a rank from the front of `text`; -1 if there is none.
int take_rank(std::string_view& text) {
  int rank = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (code != std::errc() || rank < 0 || rank >= kMaxRanks) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return rank;
}

// "3" or "5-7"; -1 in front if it is neither.
std::pair<int, int> parse_range(std::string_view text) {
  const int first = take_rank(text);
  if (text.empty() || !text.starts_with('-')) return {text.empty() ? first : -1, first};
  text.remove_prefix(1);
  const int last = take_rank(text);
  return {text.empty() && first <= last ? first : -1, last};
}

// Upper bound on the repetitions "{n,m}" of a pattern, if they are all nested.
int64_t num_repetitions(std::string_view pattern) {
  int64_t product = 1;
  for (size_t at = pattern.find('{'); at != std::string_view::npos;
       at = pattern.find('{', at + 1)) {
    const std::string_view bounds = pattern.substr(at + 1, pattern.find('}', at) - at - 1);
    for (size_t i = 0; i < bounds.size();) {
      int64_t bound = 0;
      const auto [end, code] =
          std::from_chars(bounds.data() + i, bounds.data() + bounds.size(), bound);
      if (code == std::errc::result_out_of_range || bound > kMaxRepetitions) {
        return kMaxRepetitions + 1;
      }
      if (bound > 1) product *= bound;
      // Before it can overflow: each bound is at most a thousand as well.
      if (product > kMaxRepetitions) return product;
      i = static_cast<size_t>(end - bounds.data()) + 1;
    }
  }
  return product;
}

bool has_back_reference(std::string_view pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    // An escaped backslash escapes nothing after it.
    ++i;
    if (pattern[i] >= '1' && pattern[i] <= '9') return true;
  }
  return false;
}

}  // namespace

// A merge of files that each grow: every source holds its next line, and a heap gives the earliest.
// The heap is emptied before new files and events are looked for, so a run that is followed costs
// one look per pause and not one per line. A source's key never goes back. Its host's clock may,
// and then its lines keep their own order, which is the one thing that is certain.

namespace {

// For all files together, so that memory does not grow with the number of ranks.
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
    // Rotated this moment: the name alone is missing.
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
                " is not a folder; expected the output.folder of a run");
  TRIREME_CHECK(
      std::filesystem::is_directory(run_folder_ / kLogFolderName, ignored), run_folder_.string(),
      " has no ", kLogFolderName,
      " folder; expected the folder of a run that has begun: `trireme run` keeps the output "
      "of every rank, `trireme train` what rank 0 shows");
}

LogReader::~LogReader() = default;

void LogReader::find_files() {
  const std::filesystem::path folder = run_folder_ / kLogFolderName;
  const std::vector<std::string> names = log_names(folder);
  // At least a page for each: with very many files the bound gives way.
  const size_t buffer_bytes = std::clamp(kAllBuffersBytes / (names.size() + 1), size_t{4} << 10,
                                         LineReader::Options{}.buffer_bytes);
  for (const std::string& name : names) {
    const auto rank = rank_of_log(name);
    const auto host = host_of_log(name);
    if (sources_.contains(name) || (!rank && !host) || !has_rank(filter_, rank.value_or(-1))) {
      continue;
    }
    const std::filesystem::path path = folder / name;
    // Not read at all: old logs of a long run may be gigabytes.
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
      // A line without a time keeps that of the line before it.
      entry.line.text = std::move(*text);
    }
    entry.level = source.levels.next(entry.line.stream, entry.line.text);
    entry.is_stale = entry.rank >= 0 && starts_.is_over(entry.line.epoch, entry.line.time);
    source.last_time = std::max(source.last_time, entry.line.time);
    if (passes(filter_, entry)) {
      source.is_filled = true;
      return;
    }
  }
}

std::optional<LogEntry> LogReader::next() {
  const auto is_later = [](const Source* a, const Source* b) {
    // At equal times the lowest rank comes first, so that the order is always the same.
    return std::pair(a->last_time, a->entry.rank) > std::pair(b->last_time, b->entry.rank);
  };
  if (heap_.empty()) {
    // Events first: they tell which lines are stale.
    read_events();
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

void LogReader::read_events() {
  while (const auto line = events_.next()) {
    if (!may_be_event(*line)) continue;
    try {
      const Event event = parse_event(*line, kEventFileName);
      starts_.add(event);
      if (event.kind == EventKind::kEnd) has_ended_ = true;
      if (event.kind == EventKind::kStart) has_ended_ = false;
    } catch (const ConfigError&) {  // a damaged line says nothing
    }
  }
}

bool LogReader::has_ended() {
  read_events();
  return has_ended_;
}

std::vector<std::pair<int, int>> parse_ranks(std::string_view text, std::string_view what) {
  // A list of ranks has a few ranges; every line is compared with all of them.
  constexpr size_t kMostRanges = 1000;
  std::vector<std::pair<int, int>> ranges;
  for (std::string_view rest = text; ranges.size() < kMostRanges;) {
    const size_t comma = rest.find(',');
    const auto range = parse_range(rest.substr(0, comma));
    if (range.first < 0) break;
    ranges.push_back(range);
    if (comma == std::string_view::npos) return ranges;
    rest.remove_prefix(comma + 1);
  }
  throw ConfigError(concat(what, " is \"", shown(text), "\"; expected ranks from 0 to ",
                           kMaxRanks - 1, " such as 3 or 0,5-7"));
}

std::function<bool(std::string_view)> parse_pattern(const std::string& pattern,
                                                    std::string_view what) {
  TRIREME_CHECK(pattern.size() <= kMaxPatternBytes, what, " has ", pattern.size(),
                " bytes; expected at most ", kMaxPatternBytes);
  TRIREME_CHECK(num_repetitions(pattern) <= kMaxRepetitions, what, " is \"", shown(pattern),
                "\", which repeats too often; expected at most ", kMaxRepetitions,
                " repetitions in all {}");
  // A back-reference makes the matching exponential.
  TRIREME_CHECK(!has_back_reference(pattern), what, " is \"", shown(pattern),
                "\", which refers back to a group; expected a pattern without \\1 to \\9");
  // Two owners: regfree() is allowed only after regcomp() has succeeded.
  const std::shared_ptr<regex_t> compiled(new regex_t, [](regex_t* regex) { delete regex; });
  const int code = ::regcomp(compiled.get(), pattern.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code != 0) {
    char reason[200];
    ::regerror(code, compiled.get(), reason, sizeof(reason));
    throw ConfigError(concat(what, " is \"", shown(pattern), "\": ", reason,
                             "; expected a pattern as of `grep -E`"));
  }
  const std::shared_ptr<regex_t> regex(compiled.get(), [compiled](regex_t* it) { ::regfree(it); });
  return [regex](std::string_view text) {
    // Its size is in `bounds`, because a line may contain a zero.
    regmatch_t bounds{.rm_so = 0, .rm_eo = static_cast<regoff_t>(text.size())};
    const char* const start = text.data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
    return ::regexec(regex.get(), start, 1, &bounds, REG_STARTEND) == 0;
  };
}

}  // namespace trireme::launch
