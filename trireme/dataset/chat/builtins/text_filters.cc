#include <cmath>
#include <utility>

#include "trireme/dataset/chat/builtins/filters.h"
#include "trireme/dataset/chat/builtins/text_parts.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/json_text.h"
#include "trireme/dataset/chat/values/letter_case.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

constexpr int64_t kMaxIndent = 1000;
constexpr int64_t kMaxPlaces = 300;

// The text of any value. What is escaped stays so.
Text soft_text(Run& run, const Value& input) {
  if (const Text* text = input.as_text()) return *text;
  return {.bytes = text_of(run, input)};
}

// An indentation: a number of spaces, or the text itself.
std::string indentation(Run& run, const Value& width) {
  if (const Text* text = width.as_text()) return text->bytes;
  int64_t spaces = 0;
  if (!width.get_integer(spaces)) {
    require_defined(run, width);
    run.fail("indents by ", kind_of(width), "; use a number of spaces, or a text");
  }
  if (spaces > kMaxIndent) {
    run.fail("indents by ", spaces, " spaces; use at most ", kMaxIndent);
  }
  return std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
}

// The text with its characters in another case. What is escaped stays so.
Value in_case(Run& run, const Value& input, const CallArguments& arguments, const char* callee,
              std::string (*convert)(std::string_view)) {
  take_none(run, callee, arguments);
  const Text text = soft_text(run, input);
  run.charge_characters(text.bytes.size());
  return Value::text(run, convert(text.bytes), text.escaped);
}

double power_of_ten(int64_t exponent) { return std::pow(10.0, static_cast<double>(exponent)); }

}  // namespace

Value filter_abs(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter abs", arguments);
  const Value number = as_number(run, input);
  double value = 0;
  number.get_number(value);
  return value < 0 || std::signbit(value) ? negate(run, number) : number;
}

Value filter_capitalize(Run& run, const Value& input, const CallArguments& arguments) {
  return in_case(run, input, arguments, "the filter capitalize", capitalize);
}

Value filter_default(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter default", arguments, {"default_value", "boolean"});
  const bool replaces = input.is_undefined() || (parameters.truth(1, false) && !is_true(input));
  return replaces ? parameters.value_or(0, Value::text(run, "")) : input;
}

Value filter_escape(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter escape", arguments);
  const Text text = soft_text(run, input);
  run.charge_bytes(text.bytes.size());
  return Value::text(run, text.escaped ? text.bytes : escaped_html(text.bytes), true);
}

Value filter_float(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter float", arguments, {"default"});
  require_defined(run, input);
  double number = 0;
  if (input.get_number(number)) return Value::number(number);
  const Text* text = input.as_text();
  if (text) run.charge_bytes(text->bytes.size());
  const auto parsed = text ? parse_number(text->bytes) : std::nullopt;
  return parsed ? Value::number(*parsed) : parameters.value_or(0, Value::number(0));
}

Value filter_format(Run& run, const Value& input, const CallArguments& arguments) {
  if (!arguments.named.empty()) {
    run.fail("the filter format is given names, which is not supported; give values in order");
  }
  return format_percent(run, soft_text(run, input), Value::tuple(run, arguments.positional));
}

Value filter_indent(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter indent", arguments, {"width", "first", "blank"});
  const std::string indent = indentation(run, parameters.value_or(0, Value::integer(4)));
  const Text* text = input.as_text();
  if (!text) {
    require_defined(run, input);
    run.fail("the filter indent is given ", kind_of(input), "; give it a text");
  }
  if (text->escaped) run.fail("the filter indent is given an escaped text; indent, then escape");
  run.charge_bytes(text->bytes.size());
  const std::string with_end = text->bytes + "\n";
  const bool blank = parameters.truth(2, false);
  TextBuilder result(run);
  if (parameters.truth(1, false)) result.add(indent);
  bool first = true;
  for (const std::string_view line : split_lines(run, with_end)) {
    if (!first) result.add("\n");
    if (!first && (blank || !line.empty())) result.add(indent);
    result.add(line);
    first = false;
  }
  return result.value();
}

Value filter_int(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter int", arguments, {"default", "base"});
  require_defined(run, input);
  if (parameters.integer(1, 10) != 10) run.fail("the filter int has a base that is not 10");
  Value otherwise = parameters.value_or(0, Value::integer(0));
  int64_t integer = 0;
  if (input.get_integer(integer)) return Value::integer(integer);
  if (const auto* number = std::get_if<double>(&input.held())) {
    return std::isnan(*number) ? otherwise : Value::integer(truncated(run, *number));
  }
  const Text* text = input.as_text();
  if (!text) return otherwise;
  run.charge_bytes(text->bytes.size());
  if (const auto parsed = parse_integer(run, text->bytes)) return Value::integer(*parsed);
  const auto number = parse_number(text->bytes);
  return number && std::isfinite(*number) ? Value::integer(truncated(run, *number)) : otherwise;
}

Value filter_lower(Run& run, const Value& input, const CallArguments& arguments) {
  return in_case(run, input, arguments, "the filter lower", lower);
}

Value filter_replace(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter replace", arguments, {"old", "new", "count"}, 2);
  const bool all = !parameters.has(2) || parameters.value(2).is_none();
  return replaced(run, text_of(run, input), text_of(run, parameters.value(0)),
                  text_of(run, parameters.value(1)), all ? -1 : parameters.integer(2, -1));
}

Value filter_round(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter round", arguments, {"precision", "method"});
  const int64_t places = parameters.integer(0, 0);
  const std::string method = parameters.has(1) ? parameters.text(1).bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    run.fail("the filter round has another method than common, ceil or floor");
  }
  if (places < 0 || places > kMaxPlaces) {
    run.fail("the filter round has ", places, " as precision; use 0 to ", kMaxPlaces);
  }
  const Value rounds = as_number(run, input);
  double number = 0;
  rounds.get_number(number);
  if (method == "common") {
    const bool is_whole = std::holds_alternative<int64_t>(rounds.held());
    return is_whole ? rounds : Value::number(rounded(number, static_cast<int>(places)));
  }
  const double scaled = number * power_of_ten(places);
  if (!std::isfinite(scaled)) run.fail("the filter round is given ", number_text(number));
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) /
                       power_of_ten(places));
}

Value filter_safe(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter safe", arguments);
  return Value::text(run, text_of(run, input), true);
}

Value filter_string(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter string", arguments);
  return input.as_text() ? input : Value::text(run, text_of(run, input));
}

Value filter_title(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter title", arguments);
  const Text text = soft_text(run, input);
  run.charge_characters(text.bytes.size());
  return Value::text(run, title_words(text.bytes));
}

Value filter_tojson(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = parameters.truth(0, false),
                  .sort_keys = parameters.truth(3, false)};
  if (parameters.has(1) && !parameters.value(1).is_none()) {
    style.indent = indentation(run, parameters.value(1));
    style.item_separator = ",";
  }
  if (parameters.has(2) && !parameters.value(2).is_none()) {
    const auto* separators = parameters.value(2).as_sequence();
    const bool are_two = separators && separators->items.size() == 2 &&
                         separators->items[0].as_text() && separators->items[1].as_text();
    if (!are_two) run.fail("the filter tojson has separators that are not two texts");
    style.item_separator = separators->items[0].as_text()->bytes;
    style.key_separator = separators->items[1].as_text()->bytes;
  }
  return to_json(run, input, style);
}

Value filter_trim(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter trim", arguments, {"chars"});
  return stripped(run, soft_text(run, input), parameters.optional_text(0));
}

Value filter_upper(Run& run, const Value& input, const CallArguments& arguments) {
  return in_case(run, input, arguments, "the filter upper", upper);
}

}  // namespace trireme::dataset::chat
