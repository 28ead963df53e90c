#include "trireme/watch/read/metric_line.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/locale/text.h"

namespace trireme::watch {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostWhole = 9e15;  // doubles hold every whole number up to here

void skip_spaces(std::string_view& rest) {
  const size_t begin = rest.find_first_not_of(" \t\r");
  rest.remove_prefix(begin == rest.npos ? rest.size() : begin);
}

bool take(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  return true;
}

// A string without escapes and control characters.
std::optional<std::string_view> take_plain_text(std::string_view& rest) {
  if (!take(rest, "\"")) return std::nullopt;
  for (size_t end = 0; end < rest.size(); ++end) {
    const auto byte = static_cast<unsigned char>(rest[end]);
    if (byte == '"') {
      const std::string_view text = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      return text;
    }
    if (byte == '\\' || byte < 0x20 || byte >= 0x7f) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> take_number(std::string_view& rest) {
  if (take(rest, "null")) return kNan;
  if (take(rest, "true")) return 1;
  if (take(rest, "false")) return 0;
  const size_t first = rest.starts_with('-') ? 1 : 0;
  if (first >= rest.size() || rest[first] < '0' || rest[first] > '9') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return std::nullopt;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return value;
}

double number_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number()) return kNan;
  const auto number = value.get<double>();
  return std::isfinite(number) ? number : kNan;
}

}  // namespace

void MetricLine::clear() {
  step_ = -1;
  epoch_ = 0;
  constexpr size_t kMostKept = size_t{1} << 18;  // of one long line, until the next
  if (fields_.capacity() > kMostKept) fields_ = {};
  if (values_.capacity() > kMostKept) values_ = {};
  fields_.clear();
  values_.clear();
  names_.clear();
}

bool MetricLine::add(std::string_view name, size_t first, bool is_list) {
  const size_t count = values_.size() - first;
  const double value = count > 0 ? values_[first] : kNan;
  const bool is_whole = !is_list && value >= 0 && value <= kMostWhole && std::floor(value) == value;
  if (name == "step") {
    if (!is_whole) return false;
    step_ = static_cast<int64_t>(value);
    values_.resize(first);
    return true;
  }
  if (name == "epoch" && is_whole) epoch_ = static_cast<int64_t>(value);
  if (name.size() > kMostNameBytes || name.empty()) {
    values_.resize(first);
    return true;
  }
  fields_.push_back({name, first, count, is_list});
  return true;
}

// Lines as our writer makes them, without any copy. What it does not know it leaves to read_any().
bool MetricLine::read_value(std::string_view& rest, std::string_view name) {
  const size_t first = values_.size();
  if (!rest.starts_with('[')) {
    const auto number = take_number(rest);
    if (!number) return false;
    values_.push_back(*number);
    return add(name, first, false);
  }
  rest.remove_prefix(1);
  skip_spaces(rest);
  if (take(rest, "]")) return add(name, first, true);
  while (true) {
    const auto number = take_number(rest);
    if (!number) return false;
    values_.push_back(*number);
    skip_spaces(rest);
    if (take(rest, "]")) return add(name, first, true);
    if (!take(rest, ",")) return false;
    skip_spaces(rest);
  }
}

bool MetricLine::read_fast(std::string_view rest) {
  skip_spaces(rest);
  if (!take(rest, "{")) return false;
  while (true) {
    skip_spaces(rest);
    const auto name = take_plain_text(rest);
    if (!name) return false;
    skip_spaces(rest);
    if (!take(rest, ":")) return false;
    skip_spaces(rest);
    if (!read_value(rest, *name)) return false;
    skip_spaces(rest);
    if (take(rest, "}")) break;
    if (!take(rest, ",")) return false;
  }
  skip_spaces(rest);
  return rest.empty() && step_ >= 0;
}

bool MetricLine::read_any(std::string_view line) {
  const auto object = try_parse_json(line);
  if (!object || !object->is_object()) return false;
  for (const auto& [name, value] : object->items()) {
    if (value.is_object() || value.is_string()) continue;
    const size_t first = values_.size();
    if (value.is_array()) {
      for (const auto& each : value) values_.push_back(number_of(each));
    } else {
      values_.push_back(number_of(value));
    }
    names_.push_back(name);
    if (!add(names_.back(), first, value.is_array())) return false;
  }
  return step_ >= 0;
}

bool MetricLine::read(std::string_view line) {
  clear();
  skip_spaces(line);
  if (!line.starts_with('{')) return false;  // of these a damaged file has the most
  if (read_fast(line)) return true;
  clear();
  return read_any(line);
}

}  // namespace trireme::watch
