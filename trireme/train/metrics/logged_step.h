// A run's metrics.jsonl after the fact: its steps as named numbers, in the form in which trackers
// take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::train {

struct LoggedValue {
  std::string name{};
  double value = 0;  // NaN where the line has null
  bool operator==(const LoggedValue&) const = default;
};

struct LoggedStep {
  int64_t step = 0;
  double time = 0;  // seconds since 1970; 0: the line has none
  std::vector<LoggedValue> values{};
};

// The numbers of a line, without its step and time. An element of a list is "name/3"; true is 1.
// Texts and objects are left out. Nothing when the line is not an object with a step.
std::optional<LoggedStep> parse_logged_step(std::string_view line);

// NaN where the step has no such number.
double value_in(const LoggedStep& step, std::string_view name);

// Gives on_step every step that counts (metrics.h) in folder/metrics.jsonl, in the file's order;
// none without the file. Takes memory for the whole file.
// Throws: Error when the file cannot be read
void for_each_step(const std::filesystem::path& folder,
                   const std::function<void(const LoggedStep&)>& on_step);

}  // namespace trireme::train
