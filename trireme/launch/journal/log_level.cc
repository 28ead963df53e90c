#include "trireme/launch/journal/log_level.h"

#include <algorithm>
#include <cctype>

namespace trireme::launch::inline internal {
namespace {

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
         !contains(text, "call different operations");
}

}  // namespace trireme::launch::inline internal
