#include "trireme/launch/journal/log_line.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <system_error>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
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

// What is between `prefix` and ".log"; empty when `name` is not of that form.
std::optional<std::string_view> middle_of(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kSuffix = ".log";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() <= prefix.size() + kSuffix.size()) return std::nullopt;
  return name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size());
}

}  // namespace

std::string to_text(const LogLine& line) {
  std::string text = to_text(line.time) + " " + std::to_string(line.epoch) + " " +
                     (line.step < 0 ? std::string(kUnknownStep) : std::to_string(line.step)) + " " +
                     name_of(kLogStreams, line.stream) + "| ";
  const size_t start = text.size();
  text += line.text;
  std::replace_if(
      text.begin() + static_cast<std::ptrdiff_t>(start), text.end(),
      [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text + "\n";
}

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
  if (!host || agent_log_name(*host) != file_name) return std::nullopt;
  return std::string(*host);
}

}  // namespace trireme::launch::inline internal
