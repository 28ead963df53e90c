#include "trireme/launch/journal/log_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>
#include <system_error>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kUnknownStep = "-";
constexpr size_t kMaxHostBytes = 200;  // file names have at most 255

// The word up to the next space, which is taken too.
std::string_view take_word(std::string_view& line) {
  const size_t length = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, length);
  line.remove_prefix(std::min(length + 1, line.size()));
  return word;
}

std::optional<int64_t> parse_count(std::string_view word, int64_t maximum) {
  int64_t count = -1;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (code != std::errc() || end != word.data() + word.size() || count < 0 || count > maximum) {
    return std::nullopt;
  }
  return count;
}

// The part between `prefix` and ".log"; empty when `name` is not of that form.
std::optional<std::string_view> middle_of(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kSuffix = ".log";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() <= prefix.size() + kSuffix.size()) return std::nullopt;
  return name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size());
}

// A line may have megabytes, and its level is in its beginning.
constexpr size_t kMostRead = 512;  // of a line
constexpr std::string_view kTraceback = "Traceback (most recent call last):";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool has_word(std::string_view text, std::string_view word) {
  // By hand: a regular expression per line would cost more than writing it.
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool starts = at == 0 || !is_word_character(text[at - 1]);
    if (starts && (end == text.size() || !is_word_character(text[end]))) return true;
  }
  return false;
}

// glog's and PyTorch's "E1125 07:12:01", perhaps in a bracket.
bool has_glog_letter(std::string_view text, char letter) {
  if (text.starts_with('[')) text.remove_prefix(1);
  return text.size() > 5 && text[0] == letter && std::all_of(&text[1], &text[5], is_digit) &&
         text[5] == ' ';
}

bool is_any(std::string_view text, bool (*matches)(std::string_view, std::string_view),
            std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return matches(text, part); });
}

bool is_error(LogStream stream, std::string_view text) {
  // The error line of our own programs.
  if (stream == LogStream::kErr && text.starts_with("trireme: ")) return true;
  return has_glog_letter(text, 'E') || has_glog_letter(text, 'F') || text.starts_with("error: ") ||
         text.starts_with("  what(): ") || is_any(text, has_word, {"ERROR", "CRITICAL", "FATAL"}) ||
         is_any(text, contains,
                {"Error: ", " error: ", "terminate called", "Segmentation fault", "core dumped",
                 "Fatal Python error", "AddressSanitizer", "double free", "stack smashing"});
}

bool is_warning(std::string_view text) {
  return has_glog_letter(text, 'W') || is_any(text, has_word, {"WARNING", "WARN"}) ||
         is_any(text, contains, {"Warning: ", "warning: "});
}

}  // namespace

std::string to_text(const LogLine& line) {
  std::string text = to_text(line.time) + " " + std::to_string(line.epoch) + " " +
                     (line.step < 0 ? std::string(kUnknownStep) : std::to_string(line.step)) + " " +
                     name_of(kLogStreams, line.stream) + "| ";
  const size_t start = text.size();
  text += line.text;
  // A line that holds two would be read as two, the second without a time.
  std::replace_if(
      text.begin() + static_cast<std::ptrdiff_t>(start), text.end(),
      [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text + "\n";
}

// Every word is checked: lines of other programs and halves of killed writers are common.
std::optional<LogLine> parse_log_line(std::string_view line) {
  const auto time = parse_time(take_word(line));
  if (!time) return std::nullopt;
  const auto epoch = parse_count(take_word(line), std::numeric_limits<int64_t>::max());
  const std::string_view step_word = take_word(line);
  const auto step = step_word == kUnknownStep ? -1 : parse_count(step_word, kMaxSteps);
  std::string_view stream_word = take_word(line);
  if (!epoch || !step || !stream_word.ends_with('|')) return std::nullopt;
  stream_word.remove_suffix(1);
  const auto* const stream = find_choice(kLogStreams, stream_word);
  if (stream == nullptr) return std::nullopt;
  return LogLine{.time = *time,
                 .epoch = *epoch,
                 .step = *step,
                 .stream = stream->value,
                 .text = std::string(line)};
}

std::string rank_log_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof(name), "rank-%05d.log", rank);
  return name;
}

std::optional<int> rank_of_log(std::string_view file_name) {
  const auto digits = middle_of(file_name, "rank-");
  const auto rank = digits ? parse_count(*digits, kMaxRanks - 1) : std::nullopt;
  // Rendered and compared, so that "rank-3.log" is not taken for a second file of rank 3.
  if (!rank || rank_log_name(static_cast<int>(*rank)) != file_name) return std::nullopt;
  return static_cast<int>(*rank);
}

std::string agent_log_name(std::string_view host) {
  std::string name(host.substr(0, kMaxHostBytes));
  std::ranges::replace_if(
      name,
      [](char c) {
        return !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 c == '.' || c == '-');
      },
      '_');
  return "agent-" + (name.empty() ? "_" : name) + ".log";
}

std::optional<std::string> host_of_log(std::string_view file_name) {
  const auto host = middle_of(file_name, "agent-");
  // As above: only names that agent_log_name() makes.
  if (!host || agent_log_name(*host) != file_name) return std::nullopt;
  return std::string(*host);
}

std::string_view without_rank_prefix(std::string_view text) {
  constexpr std::string_view kPrefix = "[rank";
  if (!text.starts_with(kPrefix)) return text;
  const size_t end = text.find_first_not_of("0123456789", kPrefix.size());
  if (end == std::string_view::npos || !text.substr(end).starts_with("]:")) return text;
  text.remove_prefix(end + 2);
  if (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

LogLevel LogLevels::next(LogStream stream, std::string_view text) {
  text = without_rank_prefix(text.substr(0, kMostRead));
  // Per stream, since the lines of both come interleaved.
  bool& in_traceback = in_traceback_[static_cast<size_t>(stream)];
  if (text.starts_with(kTraceback)) {
    in_traceback = true;
    return LogLevel::kError;
  }
  if (in_traceback) {
    // The exception itself is the first line that is not indented.
    in_traceback = text.starts_with(' ');
    return LogLevel::kError;
  }
  if (is_error(stream, text)) return LogLevel::kError;
  return is_warning(text) ? LogLevel::kWarning : LogLevel::kInfo;
}

bool is_lost_peer(std::string_view text) {
  return is_any(text.substr(0, kMostRead), contains,
                {"has left the group", " ranks), after ", "lost rank", "lost any rank",
                 "no connection to rank", "did not come within", "lost the store", "no store at",
                 " peer", "Broken pipe", "Connection refused", "remote process exited"}) &&
         // It names a peer too, but is a cause: both sides are bugs of the program.
         !contains(text, "call different operations");
}

LogWriter::LogWriter(const std::filesystem::path& file, const LogOptions& options)
    : options_(options), file_(file) {}

bool LogWriter::write(const LogLine& line) {
  std::string lines = to_text(line);
  // Before the line and in one append, so that the gap stands where it is.
  if (file_.num_lost() > 0) {
    lines.insert(0,
                 to_text({line.time, line.epoch, line.step, LogStream::kAgent,
                          concat("WARNING: ", file_.num_lost(), " lines could not be written")}));
  }
  const bool is_written = file_.append(lines);
  if (is_written) file_.take_lost();
  // After the write: a line is never cut by a rotation.
  if (file_.num_bytes() >= options_.max_bytes) file_.rotate();
  return is_written;
}

}  // namespace trireme::launch
