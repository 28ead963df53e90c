#include "trireme/launch/inject/words.h"

#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::array<Choice<int64_t>, 4> kUnits{
    {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr double kMostMilliseconds = 30.0 * 24 * 3'600'000;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

void Words::advance() {
  while (position_ < text_.size() && is_blank(text_[position_])) ++position_;
  const size_t begin = position_;
  if (begin < text_.size() && text_[begin] == ';') {
    ++position_;
  } else {
    while (position_ < text_.size() && !is_blank(text_[position_]) && text_[position_] != ';') {
      ++position_;
    }
  }
  word_ = text_.substr(begin, position_ - begin);
}

std::string_view Words::next() {
  const std::string_view word = word_;
  advance();
  return word;
}

bool Words::take(std::string_view word) {
  if (word_ != word) return false;
  advance();
  return true;
}

bool Words::take_value(std::string_view key, std::string_view& value) {
  if (word_.size() <= key.size() || !word_.starts_with(key) || word_[key.size()] != '=') {
    return false;
  }
  value = next().substr(key.size() + 1);
  return true;
}

int64_t Words::integer(std::string_view value, int64_t minimum, int64_t maximum) const {
  int64_t number = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code != std::errc() || end != value.data() + value.size() || number < minimum ||
      number > maximum) {
    fail(value, concat("a whole number from ", minimum, " to ", maximum));
  }
  return number;
}

double Words::number(std::string_view value, double minimum, double maximum) const {
  double number = NAN;
  const auto [end, code] =
      std::from_chars(value.data(), value.data() + value.size(), number, std::chars_format::fixed);
  if (code != std::errc() || end != value.data() + value.size() ||
      !(number >= minimum && number <= maximum)) {
    fail(value, concat("a number from ", minimum, " to ", maximum));
  }
  return number;
}

std::chrono::milliseconds Words::duration(std::string_view value) const {
  const size_t digits = std::min(value.find_first_not_of("0123456789."), value.size());
  const auto* const unit = find_choice(kUnits, value.substr(digits));
  double number = NAN;
  const auto [end, code] =
      std::from_chars(value.data(), value.data() + digits, number, std::chars_format::fixed);
  const bool is_number = code == std::errc() && end == value.data() + digits;
  const double milliseconds =
      is_number && unit != nullptr ? number * static_cast<double>(unit->value) : NAN;
  if (!(milliseconds >= 0 && milliseconds <= kMostMilliseconds)) {
    fail(value, "a time of at most 30 days, such as 20s, 200ms, 1.5m or 1h");
  }
  return std::chrono::milliseconds(std::llround(milliseconds));
}

void Words::fail(std::string_view value, const std::string& expected) const {
  const auto place = static_cast<size_t>(value.data() - text_.data());
  const std::string found = value.empty()  ? "nothing"
                            : value == ";" ? "\";\""
                                           : concat("\"", shown(value, 40), "\"");
  throw ConfigError(concat("--inject: ", found, " at character ", place + 1, " of \"",
                           shown(text_, 200), "\"; expected ", expected));
}

std::string duration_text(std::chrono::milliseconds duration) {
  for (const auto& [name, milliseconds] : kUnits) {
    if (duration.count() != 0 && duration.count() % milliseconds == 0) {
      return concat(duration.count() / milliseconds, name);
    }
  }
  return "0s";
}

}  // namespace trireme::launch::inline internal
