// Checks the range of a number on the command line before it is converted.
#pragma once

#include <charconv>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/key.h"

namespace trireme::cli::inline internal {

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

}  // namespace trireme::cli::inline internal
