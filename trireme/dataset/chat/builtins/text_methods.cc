#include <algorithm>

#include "trireme/dataset/chat/builtins/methods.h"
#include "trireme/dataset/chat/builtins/text_parts.h"
#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/letter_case.h"
#include "trireme/dataset/chat/values/text_search.h"
#include "trireme/dataset/chat/values/value_order.h"

namespace trireme::dataset::chat {

namespace {

// A call of a method of a text.
struct TextCall {
  Run& run;
  const Text& text;
  std::string callee;
  const CallArguments& arguments;

  Parameters take(std::initializer_list<std::string_view> names, size_t num_required = 0) const {
    return {run, callee, arguments, names, num_required};
  }
  Value make(std::string_view bytes) const { return Value::text(run, bytes); }
};

template <std::string (*Change)(std::string_view)>
Value change_case(const TextCall& call) {
  call.take({});
  call.run.charge_characters(call.text.bytes.size());
  return Value::text(call.run, Change(call.text.bytes));
}

template <bool Left, bool Right>
Value strip_ends(const TextCall& call) {
  const Parameters parameters = call.take({"chars"});
  return stripped(call.run, call.text, parameters.optional_text(0), {Left, Right});
}

template <bool FromRight>
Value split_text(const TextCall& call) {
  const Parameters parameters = call.take({"sep", "maxsplit"});
  return split_at(call.run, call.text.bytes, parameters.optional_text(0), parameters.integer(1, -1),
                  FromRight);
}

template <bool FromRight>
Value partition_text(const TextCall& call) {
  const Parameters parameters = call.take({"sep"}, 1);
  return partition_at(call.run, call.text.bytes, parameters.text(0).bytes, FromRight);
}

// Whether the text begins or ends with the argument, or with one of a tuple.
template <bool AtEnd>
Value has_affix(const TextCall& call) {
  const Parameters parameters = call.take({"prefix"}, 1);
  const auto has = [&](const Text& affix) {
    const std::string_view text = call.text.bytes;
    call.run.charge(1);
    call.run.charge_bytes(affix.bytes.size());
    return AtEnd ? text.ends_with(affix.bytes) : text.starts_with(affix.bytes);
  };
  const Sequence* several = parameters.value(0).as_sequence(Shape::kTuple);
  if (!several) return Value::boolean(has(parameters.text(0)));
  for (const Value& affix : several->items) {
    if (!affix.as_text()) call.run.fail(call.callee, " is given a tuple with ", kind_of(affix));
    if (has(*affix.as_text())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool AtEnd>
Value remove_affix(const TextCall& call) {
  const Parameters parameters = call.take({"prefix"}, 1);
  std::string_view text = call.text.bytes;
  const std::string_view affix = parameters.text(0).bytes;
  call.run.charge_bytes(affix.size());
  if (AtEnd && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!AtEnd && text.starts_with(affix)) text.remove_prefix(affix.size());
  return call.make(text);
}

Value replace_text(const TextCall& call) {
  const Parameters parameters = call.take({"old", "new", "count"}, 2);
  return replaced(call.run, call.text.bytes, parameters.text(0).bytes, parameters.text(1).bytes,
                  parameters.integer(2, -1));
}

Value join_items(const TextCall& call) {
  return joined(call.run, call.text.bytes, call.take({"iterable"}, 1).value(0));
}

Value format_text(const TextCall& call) {
  return format_braces(call.run, call.text, call.arguments.positional, call.arguments.named);
}

Value split_text_lines(const TextCall& call) {
  const Parameters parameters = call.take({"keepends"});
  std::vector<Value> lines;
  for (const auto line : split_lines(call.run, call.text.bytes, parameters.truth(0, false))) {
    lines.push_back(call.make(line));
  }
  return Value::list(call.run, std::move(lines));
}

// The index of the character where the argument is found; -1 when it is not.
template <bool FromRight>
int64_t place_of(const TextCall& call) {
  const Parameters parameters = call.take({"sub"}, 1);
  const std::string_view text = call.text.bytes, part = parameters.text(0).bytes;
  call.run.charge_bytes(text.size() + part.size());
  if (part.empty()) return FromRight ? static_cast<int64_t>(call.text.length) : 0;
  const TextSearch search(part, FromRight ? SearchFrom::kRight : SearchFrom::kLeft);
  const size_t place = search.find(text);
  if (place == TextSearch::kNone) return -1;
  return static_cast<int64_t>(count_characters(text.substr(0, place)));
}

template <bool FromRight>
Value find_part(const TextCall& call) {
  return Value::integer(place_of<FromRight>(call));
}

template <bool FromRight>
Value index_part(const TextCall& call) {
  const int64_t place = place_of<FromRight>(call);
  if (place < 0) call.run.fail(call.callee, " finds no such text; ask with `in` first");
  return Value::integer(place);
}

Value count_parts(const TextCall& call) {
  const Parameters parameters = call.take({"sub"}, 1);
  const std::string_view text = call.text.bytes, part = parameters.text(0).bytes;
  call.run.charge_bytes(text.size() + part.size());
  if (part.empty()) return Value::integer(static_cast<int64_t>(call.text.length) + 1);
  const TextSearch search(part);
  int64_t count = 0;
  for (size_t place = 0; (place = search.find(text, place)) != TextSearch::kNone; ++count) {
    place += part.size();
  }
  return Value::integer(count);
}

template <bool (*Property)(std::string_view)>
Value has_case_of(const TextCall& call) {
  call.take({});
  call.run.charge_characters(call.text.bytes.size());
  return Value::boolean(Property(call.text.bytes));
}

// Whether there are characters, and all have the property.
template <bool (*Property)(char32_t)>
Value all_are(const TextCall& call) {
  call.take({});
  const std::string_view text = call.text.bytes;
  call.run.charge_characters(text.size());
  for (size_t offset = 0; offset < text.size();) {
    if (!Property(next_character(text, offset))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

// Python counts more numbers as digits, such as superscripts, and knows them one by one.
template <bool Letters>
Value all_are_digits(const TextCall& call) {
  call.take({});
  const std::string_view text = call.text.bytes;
  call.run.charge_characters(text.size());
  bool all = !text.empty();
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_character(text, offset);
    if (is_decimal_digit(c) || (Letters && is_letter(c))) continue;
    if (c >= 0x80 && !is_letter(c) && !is_space(c)) {
      call.run.fail(call.callee,
                    " finds a character that is neither a letter nor a decimal "
                    "digit, which is not supported; use isdecimal");
    }
    all = false;
  }
  return Value::boolean(all);
}

Value is_ascii(const TextCall& call) {
  call.take({});
  return Value::boolean(call.text.length == call.text.bytes.size());
}

struct TextMethod {
  std::string_view name;
  Value (*function)(const TextCall& call);
};

constexpr TextMethod kMethods[] = {{"capitalize", change_case<capitalize>},
                                   {"count", count_parts},
                                   {"endswith", has_affix<true>},
                                   {"find", find_part<false>},
                                   {"format", format_text},
                                   {"index", index_part<false>},
                                   {"isalnum", all_are_digits<true>},
                                   {"isalpha", all_are<is_letter>},
                                   {"isascii", is_ascii},
                                   {"isdecimal", all_are<is_decimal_digit>},
                                   {"isdigit", all_are_digits<false>},
                                   {"islower", has_case_of<is_lower>},
                                   {"isnumeric", all_are_digits<false>},
                                   {"isspace", all_are<is_space>},
                                   {"isupper", has_case_of<is_upper>},
                                   {"join", join_items},
                                   {"lower", change_case<lower>},
                                   {"lstrip", strip_ends<true, false>},
                                   {"partition", partition_text<false>},
                                   {"removeprefix", remove_affix<false>},
                                   {"removesuffix", remove_affix<true>},
                                   {"replace", replace_text},
                                   {"rfind", find_part<true>},
                                   {"rindex", index_part<true>},
                                   {"rpartition", partition_text<true>},
                                   {"rsplit", split_text<true>},
                                   {"rstrip", strip_ends<false, true>},
                                   {"split", split_text<false>},
                                   {"splitlines", split_text_lines},
                                   {"startswith", has_affix<false>},
                                   {"strip", strip_ends<true, true>},
                                   {"title", change_case<title>},
                                   {"upper", change_case<upper>}};

}  // namespace

Value call_text_method(Run& run, const Text& text, const std::string& name,
                       const CallArguments& arguments) {
  const auto* found = std::ranges::find(kMethods, name, &TextMethod::name);
  if (found == std::end(kMethods)) {
    run.fail("calls the method ", name, " of a text, which is not supported");
  }
  if (text.escaped)
    run.fail("calls the method ", name, " of an escaped text; call it, then escape");
  return found->function({run, text, "the method " + name + " of a text", arguments});
}

}  // namespace trireme::dataset::chat
