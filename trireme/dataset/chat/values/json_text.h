// Values from JSON and as JSON.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

// `name` is that of the variable, for messages.
// Throws: ConfigError when the value is nested too deep, has a number that does not fit in 64 bits
//         with a sign, or has text that is not UTF-8
Value from_json(Run& run, const nlohmann::ordered_json& json, const std::string& name);

// What Python's json.dumps() takes.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent{};  // of one level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Throws: ConfigError for what JSON does not have: undefined, iterators, functions
Value to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace trireme::dataset::chat
