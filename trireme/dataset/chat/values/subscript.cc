#include "trireme/dataset/chat/values/subscript.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

// Python's methods. Those that this program lacks are here too: a template asks whether
// `x.name` is defined, and calling one says that it is missing.
constexpr std::string_view kTextMethods[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr size_t kShownBytes = 60;

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The method `name`, or an undefined value that says why it cannot be had. Nothing: there is none.
std::optional<Value> find_method(const Value& value, std::string_view name) {
  std::span<const std::string_view> methods, changes;
  if (value.as_text()) methods = kTextMethods;
  if (value.as_dict()) methods = kDictMethods, changes = kDictChanges;
  if (value.as_sequence(Shape::kList)) methods = kListMethods, changes = kListChanges;
  if (value.as_sequence(Shape::kTuple) || value.as_sequence(Shape::kRange)) {
    methods = kTupleMethods;
  }
  if (is_among(methods, name)) return Value::method(value, std::string(name));
  if (is_among(changes, name)) {
    return Value::undefined(concat("uses the method ", name, " of ", kind_of(value),
                                   ", which would change it; templates may only set variables"));
  }
  return std::nullopt;
}

Value missing(const Value& value, const Value& key) {
  int64_t index = 0;
  if (const Text* text = key.as_text()) {
    return Value::undefined(concat("uses the attribute ", shown(text->bytes, kShownBytes), " of ",
                                   kind_of(value), ", which has no such attribute"));
  }
  if (key.get_integer(index)) {
    return Value::undefined(
        concat("uses the item ", index, " of ", kind_of(value), ", which has no such item"));
  }
  return Value::undefined(
      concat("looks for ", kind_of(key), " in ", kind_of(value), ", which has no such item"));
}

std::optional<Value> text_item(Run& run, const Text& text, int64_t index) {
  const auto length = static_cast<int64_t>(text.length);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  if (text.length == text.bytes.size()) {
    return Value::text(run, text.bytes.substr(static_cast<size_t>(index), 1), text.escaped);
  }
  run.charge_bytes(text.bytes.size());
  const size_t begin = character_offset(text.bytes, static_cast<size_t>(index));
  size_t end = begin;
  next_character(text.bytes, end);
  return Value::text(run, text.bytes.substr(begin, end - begin), text.escaped);
}

// Python's value[key], without methods.
std::optional<Value> find_item(Run& run, const Value& value, const Value& key) {
  if (const Dict* dict = value.as_dict()) {
    if (key.as_dict() || key.as_sequence()) return std::nullopt;
    const Value* found = dict->find(run, key);
    return found ? std::optional(*found) : std::nullopt;
  }
  int64_t index = 0;
  if (!key.get_integer(index)) return std::nullopt;
  if (const Text* text = value.as_text()) return text_item(run, *text, index);
  const Sequence* sequence = value.as_sequence();
  const bool indexed =
      sequence && (sequence->shape == Shape::kList || sequence->shape == Shape::kTuple ||
                   sequence->shape == Shape::kRange);
  if (!indexed) return std::nullopt;
  if (index < 0) index += std::ssize(sequence->items);
  if (index < 0 || index >= std::ssize(sequence->items)) return std::nullopt;
  return sequence->items[static_cast<size_t>(index)];
}

std::optional<Value> find_attribute(const Value& value, std::string_view name) {
  if (const auto* space = std::get_if<Namespace*>(&value.held())) {
    const Value* found = (*space)->find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  return find_method(value, name);
}

// One bound of a slice of `length` items, as Python counts it.
std::optional<int64_t> bound(Run& run, const Value& value) {
  if (value.is_none()) return std::nullopt;
  int64_t number = 0;
  if (value.get_integer(number)) return number;
  require_defined(run, value);
  run.fail("slices with ", kind_of(value), "; use integers");
}

// The items that a slice takes: from `first`, by `step`, until `last` is reached or passed.
struct SliceRange {
  int64_t first;
  int64_t last;
  int64_t step;
};

SliceRange slice_range(int64_t length, std::optional<int64_t> begin, std::optional<int64_t> end,
                       int64_t step) {
  const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? length - 1 : length;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = index < -length ? lowest : index + length;
    return std::clamp(index, lowest, std::max(lowest, highest));
  };
  return {.first = begin ? clamp(*begin) : (step < 0 ? highest : lowest),
          .last = end ? clamp(*end) : (step < 0 ? lowest : highest),
          .step = step};
}

std::vector<size_t> indices_of(Run& run, const SliceRange& range) {
  const auto [first, last, step] = range;
  std::vector<size_t> indices;
  // `step` may be as large as an integer can be.
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    run.charge(1);
    indices.push_back(static_cast<size_t>(i));
    if (step > 0 ? step >= last - i : step <= last - i) break;
  }
  return indices;
}

Value slice_text(Run& run, const Text& text, const SliceRange& range) {
  run.charge_bytes(text.bytes.size());
  const bool is_ascii = text.length == text.bytes.size();
  if (range.step == 1) {
    const auto offset = [&](int64_t index) {
      const auto place = static_cast<size_t>(index);
      return is_ascii ? place : character_offset(text.bytes, place);
    };
    if (range.first >= range.last) return Value::text(run, std::string(), text.escaped);
    const size_t begin = offset(range.first);
    return Value::text(run, text.bytes.substr(begin, offset(range.last) - begin), text.escaped);
  }
  std::vector<size_t> offsets;
  for (size_t offset = 0; offset < text.bytes.size(); next_character(text.bytes, offset)) {
    offsets.push_back(offset);
  }
  offsets.push_back(text.bytes.size());
  std::string result;
  for (const size_t index : indices_of(run, range)) {
    result.append(text.bytes, offsets[index], offsets[index + 1] - offsets[index]);
  }
  return Value::text(run, std::move(result), text.escaped);
}

}  // namespace

Value attribute(Run& run, const Value& value, const Value& name) {
  require_defined(run, value);
  if (auto found = find_attribute(value, name.as_text()->bytes)) return *found;
  if (auto found = find_item(run, value, name)) return *found;
  return missing(value, name);
}

Value item(Run& run, const Value& value, const Value& key) {
  require_defined(run, value);
  if (auto found = find_item(run, value, key)) return *found;
  if (const Text* name = key.as_text()) {
    if (auto found = find_attribute(value, name->bytes)) return *found;
  }
  return missing(value, key);
}

Value item_by_path(Run& run, Value value, const Value& path, const Value* otherwise) {
  if (path.is_none()) return value;
  const auto step_to = [&](const Value& key) {
    value = item(run, value, key);
    if (otherwise && !otherwise->is_none() && value.is_undefined()) value = *otherwise;
  };
  const Text* names = path.as_text();
  if (!names) {
    step_to(path);
    return value;
  }
  for (size_t begin = 0; begin <= names->bytes.size();) {
    run.charge(1);
    const size_t end = std::min(names->bytes.find('.', begin), names->bytes.size());
    const std::string name = names->bytes.substr(begin, end - begin);
    int64_t index = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index =
        error == std::errc() && rest == name.data() + name.size() && name[0] != '-';
    step_to(is_index ? Value::integer(index) : Value::text(run, name));
    begin = end + 1;
  }
  return value;
}

Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step) {
  require_defined(run, value);
  const int64_t stride = bound(run, step).value_or(1);
  if (stride == 0) run.fail("slices with a step of 0; use another");
  const Text* text = value.as_text();
  const Sequence* sequence = value.as_sequence();
  const bool sliced =
      text || (sequence && (sequence->shape == Shape::kList || sequence->shape == Shape::kTuple ||
                            sequence->shape == Shape::kRange));
  if (!sliced) run.fail("slices ", kind_of(value), "; slice a list or a text");
  const auto length = static_cast<int64_t>(*length_of(value));
  const auto range = slice_range(length, bound(run, begin), bound(run, end), stride);
  if (text) return slice_text(run, *text, range);
  std::vector<Value> items;
  for (const size_t index : indices_of(run, range)) items.push_back(sequence->items[index]);
  return Value::sequence(run, sequence->shape, std::move(items));
}

}  // namespace trireme::dataset::chat
