// Python's operators on numbers, texts and lists, and texts as numbers.
#pragma once

#include <optional>
#include <string_view>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// Integers have 64 bits here, and any size in Python: more is an error.
// Throws: ConfigError when the operands have no such operation, a divisor is 0, or the result is
//         too large
Value calculate(Run& run, Arithmetic operation, const Value& left, const Value& right);

Value negate(Run& run, const Value& value);
// `+value`.
Value as_number(Run& run, const Value& value);

// What int() and float() make of a text; nothing when it is no number.
// Throws: ConfigError when an integer does not fit in 64 bits
std::optional<int64_t> parse_integer(Run& run, std::string_view text);
std::optional<double> parse_number(std::string_view text);

// The integer part.
// Throws: ConfigError when it does not fit in 64 bits, or there is none
int64_t truncated(Run& run, double number);

// round(number, places), exactly rounded, halves to even digits.
double rounded(double number, int places);

}  // namespace trireme::dataset::chat
