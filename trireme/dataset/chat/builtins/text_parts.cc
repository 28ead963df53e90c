#include "trireme/dataset/chat/builtins/text_parts.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/text_search.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

constexpr size_t kMaxStripped = 256;

size_t as_limit(int64_t count) {
  return count < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(count);
}

Value replaced_between(Run& run, std::string_view text, std::string_view replacement,
                       size_t count) {
  TextBuilder result(run);
  size_t offset = 0;
  for (; count > 0; --count) {
    result.add(replacement);
    if (offset == text.size()) return result.value();
    const size_t begin = offset;
    next_character(text, offset);
    run.charge(1);
    result.add(text.substr(begin, offset - begin));
  }
  result.add(text.substr(offset));
  return result.value();
}

Value list_of(Run& run, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::text(run, part));
  return Value::list(run, std::move(items));
}

void require_separator(const Run& run, std::string_view separator) {
  if (separator.empty()) run.fail("splits a text at an empty text; use another separator");
}

std::vector<std::string_view> words_from_left(Run& run, std::string_view text, size_t count) {
  std::vector<std::string_view> words;
  for (text = strip(text, {}, {.right = false}); !text.empty();
       text = strip(text, {}, {.right = false})) {
    run.charge(1);
    if (words.size() == count) {
      words.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(next_character(text, next))) break;
      end = next;
    }
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// The words from the last to the first.
std::vector<std::string_view> words_from_right(Run& run, std::string_view text, size_t count) {
  std::vector<std::string_view> words;
  for (text = strip(text, {}, {.left = false}); !text.empty();
       text = strip(text, {}, {.left = false})) {
    run.charge(1);
    if (words.size() == count) {
      words.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t before = begin;
      if (is_space(previous_character(text, before))) break;
      begin = before;
    }
    words.push_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  return words;
}

}  // namespace

Value replaced(Run& run, std::string_view text, std::string_view old, std::string_view replacement,
               int64_t count) {
  run.charge_bytes(text.size() + old.size());
  size_t left = as_limit(count);
  if (old.empty()) return replaced_between(run, text, replacement, left);
  const TextSearch search(old);
  TextBuilder result(run);
  size_t offset = 0;
  while (left-- > 0) {
    const size_t place = search.find(text, offset);
    if (place == TextSearch::kNone) break;
    run.charge(1);
    result.add(text.substr(offset, place - offset));
    result.add(replacement);
    offset = place + old.size();
  }
  result.add(text.substr(offset));
  return result.value();
}

Value split_at(Run& run, std::string_view text, std::optional<std::string_view> separator,
               int64_t count, bool from_right) {
  run.charge_bytes(text.size());
  size_t left = as_limit(count);
  std::vector<std::string_view> parts;
  if (!separator) {
    parts = from_right ? words_from_right(run, text, left) : words_from_left(run, text, left);
  } else {
    require_separator(run, *separator);
    run.charge_bytes(separator->size());
    const TextSearch search(*separator, from_right ? SearchFrom::kRight : SearchFrom::kLeft);
    for (; left > 0; --left) {
      const size_t place = search.find(text);
      if (place == TextSearch::kNone) break;
      run.charge(1);
      const size_t behind = place + separator->size();
      parts.push_back(from_right ? text.substr(behind) : text.substr(0, place));
      text = from_right ? text.substr(0, place) : text.substr(behind);
    }
    parts.push_back(text);
  }
  if (from_right) std::ranges::reverse(parts);
  return list_of(run, parts);
}

Value partition_at(Run& run, std::string_view text, std::string_view separator, bool from_right) {
  require_separator(run, separator);
  run.charge_bytes(text.size() + separator.size());
  const size_t place =
      TextSearch(separator, from_right ? SearchFrom::kRight : SearchFrom::kLeft).find(text);
  std::string_view before = text, found = "", behind = "";
  if (place != TextSearch::kNone) {
    before = text.substr(0, place);
    found = separator;
    behind = text.substr(place + separator.size());
  } else if (from_right) {
    std::swap(before, behind);
  }
  return Value::tuple(
      run, {Value::text(run, before), Value::text(run, found), Value::text(run, behind)});
}

Value stripped(Run& run, const Text& text, std::optional<std::string_view> characters,
               StripEnds ends) {
  if (characters && characters->size() > kMaxStripped) {
    run.fail("strips characters that take ", characters->size(), " bytes; use at most ",
             kMaxStripped);
  }
  run.charge_bytes(text.bytes.size());
  return Value::text(run, std::string(strip(text.bytes, characters, ends)), text.escaped);
}

Value joined(Run& run, std::string_view separator, const Value& items) {
  TextBuilder result(run);
  bool first = true;
  for (const Value& item : items_of(run, items)) {
    const Text* text = item.as_text();
    if (!text) run.fail("joins ", kind_of(item), " to a text; make a text of it first");
    if (!first) result.add(separator);
    first = false;
    result.add(text->bytes);
  }
  return result.value();
}

}  // namespace trireme::dataset::chat
