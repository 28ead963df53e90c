#include "trireme/launch/journal/time_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// Takes `count` digits from the front of `text`; -1 if they are not there.
int64_t take_digits(std::string_view& text, size_t count) {
  if (text.size() < count) return -1;
  int64_t value = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

// The fraction behind a second, cut to microseconds; -1 if it is none.
int64_t take_fraction(std::string_view& text) {
  if (!take(text, '.')) return 0;
  // No from_chars for a double: its digits would be rounded in binary.
  const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  if (count == 0 || count > 9) return -1;
  int64_t micros = take_digits(text, std::min<size_t>(count, 6));
  for (size_t i = count; i < 6; ++i) micros *= 10;
  if (count > 6) text.remove_prefix(count - 6);
  return micros;
}

// The point in time, if every part is in range.
std::optional<WallTime> time_of(int64_t year, int64_t month, int64_t day, int64_t hour,
                                int64_t minute, int64_t second, int64_t micros) {
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(year)),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  // A leap second is 60.
  if (year < 0 || !date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
      second > 60 || micros < 0) {
    return std::nullopt;
  }
  // system_clock counts nanoseconds, which reach from 1677 to 2262.
  if (year < 1678 || year > 2261) return std::nullopt;
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + seconds(second) + microseconds(micros);
}

// "1.5h" as a duration.
std::optional<microseconds> parse_duration(std::string_view text) {
  if (text.size() < 2 || text.size() > 12) return std::nullopt;
  const double unit = text.back() == 's'   ? 1
                      : text.back() == 'm' ? 60
                      : text.back() == 'h' ? 3600
                      : text.back() == 'd' ? 86400
                                           : 0;
  text.remove_suffix(1);
  const bool is_number =
      std::ranges::all_of(text, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  if (unit == 0 || !is_number || std::ranges::count(text, '.') > 1 || text == ".") {
    return std::nullopt;
  }
  constexpr double kMost = 1e9;  // seconds, some thirty years
  double count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count, std::chars_format::fixed);
  count *= unit;
  if (count > kMost) return std::nullopt;
  return microseconds(static_cast<int64_t>(1e6 * count));
}

}  // namespace

std::string to_text(WallTime time) {
  const auto since_epoch = std::chrono::floor<microseconds>(time.time_since_epoch());
  const auto whole = std::chrono::floor<seconds>(since_epoch);
  const std::time_t count = whole.count();
  std::tm parts{};
  // Not ctime's: those share one buffer among threads.
  gmtime_r(&count, &parts);
  char text[80];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%06lldZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<long long>((since_epoch - whole).count()));
  return text;
}

std::optional<WallTime> parse_time(std::string_view text) {
  const int64_t year = take_digits(text, 4);
  if (!take(text, '-')) return std::nullopt;
  const int64_t month = take_digits(text, 2);
  if (!take(text, '-')) return std::nullopt;
  const int64_t day = take_digits(text, 2);
  if (!take(text, 'T')) return std::nullopt;
  const int64_t hour = take_digits(text, 2);
  if (!take(text, ':')) return std::nullopt;
  const int64_t minute = take_digits(text, 2);
  if (!take(text, ':')) return std::nullopt;
  const int64_t second = take_digits(text, 2);
  const int64_t micros = take_fraction(text);
  if (!take(text, 'Z') || !text.empty() || month < 0 || day < 0) return std::nullopt;
  return time_of(year, month, day, hour, minute, second, micros);
}

WallTime parse_since(std::string_view text, std::string_view what, WallTime now) {
  if (const auto duration = parse_duration(text)) return now - *duration;
  // A shorter time is the beginning of a full one.
  constexpr std::string_view kMidnight = "0000-00-00T00:00:00Z";
  std::string whole(text);
  if (whole.ends_with('Z')) whole.pop_back();
  if (whole.size() > 10 && whole[10] == ' ') whole[10] = 'T';
  const bool is_short = whole.size() == 10 || whole.size() == 13 || whole.size() == 16;
  whole += is_short ? kMidnight.substr(whole.size()) : "Z";
  if (const auto time = parse_time(whole)) return *time;
  throw ConfigError(concat(what, " is \"", shown(text),
                           "\"; expected a duration such as 90s, 10m, 2h or 3d, or a time in UTC "
                           "such as 2026-11-25T07:12"));
}

}  // namespace trireme::launch
