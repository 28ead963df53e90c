#include "trireme/dataset/blend/source_list.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/dataset/blend/blend.h"

namespace trireme::dataset {
namespace {

__extension__ using Wide = __int128;  // a weight times a period, and sums of weights

constexpr size_t kMostWholeDigits = 12;
constexpr size_t kMostDecimals = 6;
constexpr size_t kLongestName = 64;

// Characters of ASCII: what the locale's isalpha() says does not matter.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_source_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && is_letter(name.front()) &&
         std::ranges::all_of(
             name, [](char c) { return is_digit(c) || is_letter(c) || c == '_' || c == '-'; });
}

// In millionths; empty for what is no decimal above 0, or has too many digits.
std::optional<int64_t> decimal_weight(std::string_view text) {
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point < text.size() ? text.substr(point + 1) : "";
  const bool fits = whole.size() + decimals.size() > 0 && whole.size() <= kMostWholeDigits &&
                    decimals.size() <= kMostDecimals && std::ranges::all_of(whole, is_digit) &&
                    std::ranges::all_of(decimals, is_digit);
  if (!fits) return std::nullopt;
  int64_t value = 0;
  for (const char digit : whole) value = 10 * value + (digit - '0');
  for (size_t i = 0; i < kMostDecimals; ++i) {
    value = 10 * value + (i < decimals.size() ? decimals[i] - '0' : 0);
  }
  return value > 0 ? std::optional(value) : std::nullopt;
}

// Turns the weights, in millionths, into parts of a period.
void make_period(std::string_view key, std::vector<ListedSource>& sources) {
  int64_t common = 0;
  for (const ListedSource& source : sources) common = std::gcd(common, source.weight);
  Wide sum = 0;
  for (ListedSource& source : sources) sum += source.weight /= common;
  if (sum <= Blend::kLongestPeriod) return;
  std::vector<Wide> rests;
  int64_t left = Blend::kLongestPeriod;
  for (ListedSource& source : sources) {
    const Wide parts = Wide{source.weight} * Blend::kLongestPeriod;
    source.weight = static_cast<int64_t>(parts / sum);
    TRIREME_CHECK(source.weight >= 1, key, " gives ", source.name,
                  " a share of less than a millionth of all; raise its weight, or leave it out");
    left -= source.weight;
    rests.push_back(parts % sum);
  }
  // What is left goes to the largest rests, and of equals to the first.
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return rests[a] > rests[b]; });
  for (size_t i = 0; left > 0; ++i, --left) ++sources[order[i]].weight;
}

std::vector<ListedSource> parse_list(std::string_view key, std::string_view list, bool weighted) {
  const std::string form = weighted ? "NAME=PATH:WEIGHT" : "NAME=PATH";
  const std::string example = concat(
      "; expected ", form, " for each, separated by commas, such as ",
      weighted ? "code=data/code:0.7,web=data/web:0.3" : "code=data/code,web=data/web.validation");
  std::vector<ListedSource> sources;
  std::set<std::string> names;
  for (const std::string& item : split_list(list, ',')) {
    const size_t equals = item.find('=');
    TRIREME_CHECK(equals != std::string::npos, key, " has \"", shown(item), "\", without a name",
                  example);
    ListedSource source{.name = std::string(trimmed(std::string_view(item).substr(0, equals)))};
    std::string_view rest = std::string_view(item).substr(equals + 1);
    TRIREME_CHECK(is_source_name(source.name), key, " has the name \"", shown(source.name),
                  "\"; expected a letter, and behind it letters, digits, _ and -, at most ",
                  kLongestName);
    TRIREME_CHECK(names.insert(source.name).second, key, " has the name ", source.name,
                  " twice; give each its own");
    if (weighted) {
      const size_t colon = rest.rfind(':');
      TRIREME_CHECK(colon != std::string_view::npos, key, " gives ", source.name, " no weight: \"",
                    shown(item), "\"", example);
      const std::string_view weight = trimmed(rest.substr(colon + 1));
      const std::optional<int64_t> value = decimal_weight(weight);
      TRIREME_CHECK(value, key, " gives ", source.name, " the weight \"", shown(weight),
                    "\"; expected a number above 0 such as 0.7, of at most ", kMostWholeDigits,
                    " digits before the point and ", kMostDecimals, " behind it");
      source.weight = *value;
      rest = rest.substr(0, colon);
    } else {
      source.weight = 0;
    }
    source.path = trimmed(rest);
    TRIREME_CHECK(!source.path.empty(), key, " gives ", source.name, " no path", example);
    sources.push_back(std::move(source));
  }
  TRIREME_CHECK(!sources.empty() && sources.size() <= Blend::kMostParts, key, " has ",
                sources.size(), " entries, expected 1 to ", Blend::kMostParts, example);
  return sources;
}

}  // namespace

std::vector<ListedSource> parse_blend(std::string_view key, std::string_view list) {
  std::vector<ListedSource> sources = parse_list(key, list, /*weighted=*/true);
  make_period(key, sources);
  return sources;
}

std::vector<ListedSource> parse_named_paths(std::string_view key, std::string_view list) {
  return parse_list(key, list, /*weighted=*/false);
}

std::vector<std::string> listed_names(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string& item : split_list(list, ',')) {
    names.emplace_back(trimmed(std::string_view(item).substr(0, item.find('='))));
  }
  return names;
}

}  // namespace trireme::dataset
