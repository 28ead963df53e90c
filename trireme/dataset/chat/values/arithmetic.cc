#include "trireme/dataset/chat/values/arithmetic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/format.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

std::string_view sign_of(Arithmetic operation) {
  constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<size_t>(operation)];
}

[[noreturn]] void refuse(Run& run, Arithmetic operation, const Value& left, const Value& right) {
  require_defined(run, left);
  require_defined(run, right);
  run.fail("calculates ", kind_of(left), " ", sign_of(operation), " ", kind_of(right),
           ", which has no result");
}

[[noreturn]] void too_large(Run& run) {
  run.fail("calculates an integer that does not fit in 64 bits; use smaller numbers");
}

int64_t integer_power(Run& run, int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {  // at most 63 times: then it no longer fits
    if (__builtin_mul_overflow(result, base, &result)) too_large(run);
  }
  return result;
}

Value calculate_integers(Run& run, Arithmetic operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case Arithmetic::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case Arithmetic::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Arithmetic::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Arithmetic::kDivide:
      if (b == 0) run.fail("divides by 0");
      return Value::number(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::kPower:
      if (b >= 0) return Value::integer(integer_power(run, a, b));
      if (a == 0) run.fail("divides by 0: 0 ** ", b);
      return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default:
      if (b == 0) run.fail("divides by 0");
      if (b == -1) {  // the remainder of the least integer would overflow
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        if (operation == Arithmetic::kModulo) return Value::integer(0);
        break;
      }
      result = operation == Arithmetic::kModulo ? a % b : a / b;
      if (a % b != 0 && (a < 0) != (b < 0)) {
        result += operation == Arithmetic::kModulo ? b : -1;
      }
  }
  if (overflow) too_large(run);
  return Value::integer(result);
}

// Python's remainder has the sign of the divisor.
double modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  if ((remainder < 0) != (b < 0)) remainder += b;
  return remainder;
}

double floor_divide(double a, double b) {
  const double quotient = (a - modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value calculate_numbers(Run& run, Arithmetic operation, double a, double b) {
  const bool divides = operation == Arithmetic::kDivide || operation == Arithmetic::kFloorDivide ||
                       operation == Arithmetic::kModulo;
  if ((divides && b == 0) || (operation == Arithmetic::kPower && a == 0 && b < 0)) {
    run.fail("divides by 0");
  }
  switch (operation) {
    case Arithmetic::kAdd: return Value::number(a + b);
    case Arithmetic::kSubtract: return Value::number(a - b);
    case Arithmetic::kMultiply: return Value::number(a * b);
    case Arithmetic::kDivide: return Value::number(a / b);
    case Arithmetic::kFloorDivide: return Value::number(floor_divide(a, b));
    case Arithmetic::kModulo: return Value::number(modulo(a, b));
    case Arithmetic::kPower: break;
  }
  const double power = std::pow(a, b);
  if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
    run.fail("takes a root of a negative number");
  }
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) {
    run.fail("calculates a power that is too large; use smaller numbers");
  }
  return Value::number(power);
}

Value repeat(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const Text* text = value.as_text()) {
    TextBuilder result(run);
    result.add_repeated(text->bytes, count);
    return Value::text(run, result.take(), text->escaped);
  }
  const Sequence& sequence = *value.as_sequence();
  std::vector<Value> items;
  for (size_t i = 0; !sequence.items.empty() && i < count; ++i) {
    run.charge(sequence.items.size());
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return Value::sequence(run, sequence.shape, std::move(items));
}

// Whether a list, a tuple or a text, which + joins and * repeats.
bool is_joined(const Value& value) {
  return value.as_text() || value.as_sequence(Shape::kList) || value.as_sequence(Shape::kTuple);
}

// The text of two, of which the one that is not escaped yet is, if the other is.
Value join_texts(Run& run, const Text& left, const Text& right) {
  const bool escaped = left.escaped || right.escaped;
  const auto bytes = [&](const Text& text) {
    return escaped && !text.escaped ? escaped_html(text.bytes) : text.bytes;
  };
  run.charge_text(left.bytes.size() + right.bytes.size());
  return Value::text(run, bytes(left) + bytes(right), escaped);
}

std::optional<Value> join(Run& run, const Value& left, const Value& right) {
  if (const Text* a = left.as_text(), *b = right.as_text(); a && b) return join_texts(run, *a, *b);
  const Sequence *a = left.as_sequence(), *b = right.as_sequence();
  if (!a || !b || a->shape != b->shape || !is_joined(left)) return std::nullopt;
  run.charge(a->items.size());
  std::vector<Value> items = a->items;
  items.insert(items.end(), b->items.begin(), b->items.end());
  return Value::sequence(run, a->shape, std::move(items));
}

// A number's text without the underscores between digits that Python allows; nothing when one is
// in another place.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result.push_back(text[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  if (result.starts_with('+')) result.erase(0, 1);
  const bool two_signs =
      text.starts_with('+') && (result.starts_with('-') || result.starts_with('+'));
  return two_signs || result.empty() ? std::nullopt : std::optional(result);
}

}  // namespace

Value calculate(Run& run, Arithmetic operation, const Value& left, const Value& right) {
  int64_t a_integer = 0, b_integer = 0;
  const bool a_is_integer = left.get_integer(a_integer),
             b_is_integer = right.get_integer(b_integer);
  if (a_is_integer && b_is_integer) return calculate_integers(run, operation, a_integer, b_integer);
  double a = 0, b = 0;
  if (left.get_number(a) && right.get_number(b)) return calculate_numbers(run, operation, a, b);
  if (operation == Arithmetic::kAdd) {
    if (auto joined = join(run, left, right)) return *std::move(joined);
  } else if (operation == Arithmetic::kMultiply) {
    if (b_is_integer && is_joined(left)) return repeat(run, left, b_integer);
    if (a_is_integer && is_joined(right)) return repeat(run, right, a_integer);
  } else if (operation == Arithmetic::kModulo && left.as_text()) {
    return format_percent(run, *left.as_text(), right);
  }
  refuse(run, operation, left, right);
}

Value negate(Run& run, const Value& value) {
  if (const auto* number = std::get_if<double>(&value.held())) return Value::number(-*number);
  int64_t integer = 0;
  if (value.get_integer(integer)) {
    return calculate_integers(run, Arithmetic::kSubtract, 0, integer);
  }
  require_defined(run, value);
  run.fail("negates ", kind_of(value), "; negate a number");
}

Value as_number(Run& run, const Value& value) {
  int64_t integer = 0;
  if (value.get_integer(integer)) return Value::integer(integer);
  if (std::holds_alternative<double>(value.held())) return value;
  require_defined(run, value);
  run.fail("puts a + before ", kind_of(value), "; put it before a number");
}

std::optional<int64_t> parse_integer(Run& run, std::string_view text) {
  const auto digits = without_underscores(strip(text));
  if (!digits) return std::nullopt;
  int64_t integer = 0;
  const char* end = digits->data() + digits->size();
  const auto [rest, error] = std::from_chars(digits->data(), end, integer);
  if (rest != end || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) too_large(run);
  return integer;
}

std::optional<double> parse_number(std::string_view text) {
  const auto digits = without_underscores(strip(text));
  if (!digits) return std::nullopt;
  // Of the words that from_chars() takes, Python has no "nan(...)".
  if (digits->find('(') != std::string::npos) return std::nullopt;
  double number = 0;
  const char* end = digits->data() + digits->size();
  const auto [rest, error] = std::from_chars(digits->data(), end, number);
  if (rest != end || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const size_t exponent = digits->find_first_of("eE");
    const char leading = (*digits)[digits->starts_with('-') ? 1 : 0];
    const bool is_small = exponent == std::string::npos ? leading == '0' || leading == '.'
                                                        : (*digits)[exponent + 1] == '-';
    const double magnitude = is_small ? 0.0 : std::numeric_limits<double>::infinity();
    return digits->starts_with('-') ? -magnitude : magnitude;
  }
  return number;
}

int64_t truncated(Run& run, double number) {
  if (!(number > -kTwoTo63 && number < kTwoTo63)) {
    run.fail("makes an integer of ", number_text(number), ", which does not fit in 64 bits");
  }
  return static_cast<int64_t>(number);
}

double rounded(double number, int places) {
  if (!std::isfinite(number) || places > 340) return number;
  char buffer[1024];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, places).ptr;
  double result = 0;
  std::from_chars(buffer, end, result);
  return result;
}

}  // namespace trireme::dataset::chat
