#include "trireme/launch/journal/log_query.h"

#include <charconv>
#include <memory>
#include <string>

#include <regex.h>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::launch::inline internal {
namespace {

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

// How often the repetitions "{n,m}" of a pattern repeat at most, if they are all within each other.
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
      if (product > kMaxRepetitions) return product;
      i = static_cast<size_t>(end - bounds.data()) + 1;
    }
  }
  return product;
}

bool has_back_reference(std::string_view pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    ++i;
    if (pattern[i] >= '1' && pattern[i] <= '9') return true;
  }
  return false;
}

}  // namespace

std::vector<std::pair<int, int>> parse_ranks(std::string_view text, std::string_view what) {
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
  TRIREME_CHECK(!has_back_reference(pattern), what, " is \"", shown(pattern),
                "\", which refers back to a group; expected a pattern without \\1 to \\9");
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

}  // namespace trireme::launch::inline internal
