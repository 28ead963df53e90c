#include "trireme/dataset/chat/values/format.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

constexpr size_t kShownField = 40;

void require_unescaped(const Run& run, const Text& format) {
  if (format.escaped) run.fail("formats an escaped text; format it first, then escape it");
}

// Whether value[...] is no error in Python.
bool is_indexed(const Value& value) {
  return value.is_undefined() || value.as_dict() || value.as_sequence(Shape::kList) ||
         value.as_sequence(Shape::kRange);
}

std::string decimal(Run& run, const Value& value) {
  int64_t integer = 0;
  if (value.get_integer(integer)) return std::to_string(integer);
  if (const auto* number = std::get_if<double>(&value.held())) {
    return std::to_string(truncated(run, *number));
  }
  require_defined(run, value);
  run.fail("formats ", kind_of(value), " with %d; give it a number");
}

// One "{field}": its number or name, or nothing for the next one.
const Value& field_value(Run& run, std::string_view field, const std::vector<Value>& positional,
                         const NamedValues& named, size_t next) {
  size_t index = next;
  const auto [rest, error] = std::from_chars(field.data(), field.data() + field.size(), index);
  if (field.empty() || (error == std::errc() && rest == field.data() + field.size())) {
    if (index < positional.size()) return positional[index];
  } else {
    const auto found = std::ranges::find(
        named, field, [](const auto& value) -> std::string_view { return value.first; });
    if (found != named.end()) return found->second;
    if (field.find_first_of("!:.[") != std::string_view::npos) {
      run.fail("formats with {", shown(field, kShownField),
               "}, which is not supported; use {}, {0} or {name}");
    }
  }
  run.fail("formats with {", shown(field, kShownField), "}, for which it gives no value");
}

}  // namespace

Value format_percent(Run& run, const Text& format, const Value& arguments) {
  require_unescaped(run, format);
  const Sequence* tuple = arguments.as_sequence(Shape::kTuple);
  const std::vector<Value> values = tuple ? tuple->items : std::vector<Value>{arguments};
  // Also of what makes no text.
  run.charge_bytes(format.bytes.size());
  run.charge(values.size());
  TextBuilder text(run);
  size_t used = 0;
  for (size_t i = 0; i < format.bytes.size(); ++i) {
    const char c = format.bytes[i];
    if (c != '%') {
      text.add(std::string_view(&c, 1));
      continue;
    }
    const char conversion = ++i < format.bytes.size() ? format.bytes[i] : '\0';
    if (conversion == '%') {
      text.add("%");
    } else if (conversion != 's' && conversion != 'd' && conversion != 'i') {
      run.fail("formats with a % that is not %s, %d or %%; use one of these");
    } else if (used == values.size()) {
      run.fail("formats ", values.size(), " values with a text that has more places");
    } else if (const Value& value = values[used++]; conversion == 's') {
      append_text(run, value, text);
    } else {
      text.add(decimal(run, value));
    }
  }
  // Python lets one value that has items go unused.
  const bool spare = !tuple && used == 0 && is_indexed(arguments);
  if (used != values.size() && !spare) {
    require_defined(run, arguments);
    run.fail("formats ", values.size(), " values with a text that has ", used, " places");
  }
  return text.value();
}

Value format_braces(Run& run, const Text& format, const std::vector<Value>& positional,
                    const NamedValues& named) {
  require_unescaped(run, format);
  const std::string_view bytes = format.bytes;
  run.charge_bytes(bytes.size());
  TextBuilder text(run);
  size_t next = 0, automatic = 0, numbered = 0;
  while (next < bytes.size()) {
    const char c = bytes[next];
    if (c != '{' && c != '}') {
      const size_t end = std::min(bytes.find_first_of("{}", next), bytes.size());
      text.add(bytes.substr(next, end - next));
      next = end;
    } else if (next + 1 < bytes.size() && bytes[next + 1] == c) {
      text.add(bytes.substr(next, 1));
      next += 2;
    } else {
      const size_t end = bytes.find('}', next);
      if (c == '}' || end == std::string_view::npos) {
        run.fail("formats with a single ", c, "; write it twice");
      }
      const std::string_view field = bytes.substr(next + 1, end - next - 1);
      run.charge(1);
      append_text(run, field_value(run, field, positional, named, automatic), text);
      automatic += field.empty() ? 1 : 0;
      numbered += !field.empty() && field[0] >= '0' && field[0] <= '9' ? 1 : 0;
      if (automatic > 0 && numbered > 0) run.fail("formats with both {} and {0}; use one of them");
      next = end + 1;
    }
  }
  return text.value();
}

}  // namespace trireme::dataset::chat
