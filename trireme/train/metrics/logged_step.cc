#include "trireme/train/metrics/logged_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train {
namespace {

constexpr JsonLimits kLineLimits{
    .max_bytes = size_t{16} << 20, .max_values = 1 << 20, .max_depth = 4};

constexpr double kMostTime = 1e11;  // in milliseconds it is an integer still

std::optional<double> number_of(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

void add_values(const std::string& name, const nlohmann::json& value,
                std::vector<LoggedValue>& values) {
  if (const auto number = number_of(value)) values.push_back({name, *number});
  if (!value.is_array()) return;
  size_t index = 0;
  for (const nlohmann::json& element : value) {
    if (const auto number = number_of(element))
      values.push_back({concat(name, "/", index), *number});
    ++index;
  }
}

}  // namespace

std::optional<LoggedStep> parse_logged_step(std::string_view line) {
  try {
    const std::string source = "a line";
    const nlohmann::ordered_json ordered =
        parse_ordered_json(line, source, kLineLimits);  // trackers show them in the file's order
    LoggedStep logged;
    for (const auto& [name, value] : ordered.items()) {
      const nlohmann::json plain = value;
      if (name == "step") {
        logged.step = JsonView(plain, source).integer(0, kMaxSteps);
      } else if (name == "time") {
        logged.time = number_of(plain).value_or(0);
        if (!(logged.time > 0 && logged.time < kMostTime)) logged.time = 0;
      } else {
        add_values(name, plain, logged.values);
      }
    }
    if (!ordered.contains("step")) return std::nullopt;
    return logged;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

double value_in(const LoggedStep& step, std::string_view name) {
  const auto found = std::ranges::find(step.values, name, &LoggedValue::name);
  return found == step.values.end() ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

void for_each_step(const std::filesystem::path& folder,
                   const std::function<void(const LoggedStep&)>& on_step) {
  const std::filesystem::path path = folder / kMetricsName;
  if (!is_file(path)) return;  // a run that has made no step
  const std::string text = read_file(path, MappedFile::kAnySize);
  for (const std::string_view line : counted_lines(text)) {
    if (const auto step = parse_logged_step(line)) on_step(*step);
  }
}

}  // namespace trireme::train
