// Texts with places for values: "%s" and "{}".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

using NamedValues = std::vector<std::pair<std::string, Value>>;

// `format % arguments` with %s, %d, %i and %%. A tuple is several arguments.
// Throws: ConfigError for other conversions, or another number of arguments
Value format_percent(Run& run, const Text& format, const Value& arguments);

// `format.format(...)` with {}, {0}, {name}, {{ and }}.
// Throws: ConfigError for conversions and format specifications, or a value that is missing
Value format_braces(Run& run, const Text& format, const std::vector<Value>& positional,
                    const NamedValues& named);

}  // namespace trireme::dataset::chat
