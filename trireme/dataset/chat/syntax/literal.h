// Literals of a chat template: numbers, and texts with backslashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/dataset/chat/values/run.h"

namespace trireme::dataset::chat {

struct NumberLiteral {
  bool is_integer = true;
  int64_t integer = 0;
  double number = 0;
  size_t num_bytes = 0;
};

// The number at the start of `text`, which begins with a digit.
// Throws: ConfigError when it does not fit in 64 bits
NumberLiteral read_number_literal(Run& run, std::string_view text, bool may_be_fraction);

// What stands between quotes, with Python's escapes replaced.
// Throws: ConfigError for \N{...}, an escape that is cut short, or half a surrogate pair
std::string unescaped(Run& run, std::string_view literal);

}  // namespace trireme::dataset::chat
