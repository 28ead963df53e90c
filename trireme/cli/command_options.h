// Options that several commands have: numbers, whose range is checked before they are converted;
// files that are asked for, as drawings, tables, configs; and config keys.
#pragma once

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/key.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// Refuses text that is not a number (such as NaN or infinity) and numbers out of range:
// "--calls: -1 is not in its range; expected at least 0 and at most 1000".
inline CLI::Validator within(const Range& range) {
  const auto check = [range](std::string& text) -> std::string {
    long double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      return concat("\"", text, "\" is not a number; expected one of ", to_text(range));
    }
    if (error != std::errc() || !range.contains(value)) {
      return concat(text, " is not in its range; expected ", to_text(range));
    }
    return "";
  };
  return CLI::Validator(check, "");
}

// Throws: ConfigError naming `option`, such as "--svg", when the file cannot be written
void write_output(std::string_view option, const std::string& path, std::string_view text);

// "--train.steps=10" and "--train.steps 10" -> {"train.steps", "10"}.
// Throws: ConfigError for a word that is neither
std::vector<train::Override> parse_overrides(const std::vector<std::string>& words);

}  // namespace trireme::cli
