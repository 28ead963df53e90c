#include "trireme/dataset/chat/values/json_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/locale/text.h"
#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

using nlohmann::ordered_json;

// Reads JSON that the program has; it costs no steps, so that long conversations render.
class Importer {
 public:
  Importer(Run& run, const std::string& name) : run_(run), name_(name) {}

  Value read(const ordered_json& json, size_t depth) {
    if (depth > kMaxValueDepth) {
      fail("has lists or objects more than ", kMaxValueDepth, " deep; flatten it");
    }
    switch (json.type()) {
      case ordered_json::value_t::null: return Value::none();
      case ordered_json::value_t::boolean: return Value::boolean(json.get<bool>());
      case ordered_json::value_t::number_integer: return Value::integer(json.get<int64_t>());
      case ordered_json::value_t::number_unsigned: return integer(json.get<uint64_t>());
      case ordered_json::value_t::number_float: return Value::number(json.get<double>());
      case ordered_json::value_t::string: return text(json.get_ref<const std::string&>());
      case ordered_json::value_t::array: return list(json, depth);
      case ordered_json::value_t::object: return dict(json, depth);
      default: fail("has a value that is not JSON");
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(const Args&... args) const {
    run_.fail("the variable ", name_, " ", args...);
  }

  Value integer(uint64_t number) const {
    if (number > uint64_t{std::numeric_limits<int64_t>::max()}) {
      fail("has the number ", number, "; expected at most 2^63 - 1");
    }
    return Value::integer(static_cast<int64_t>(number));
  }

  Value text(const std::string& bytes) const {
    if (!is_utf8(bytes)) fail("has text that is not UTF-8");
    if (bytes.size() > run_.limits().max_text_bytes) {
      fail("has a text of ", bytes.size(), " bytes; expected at most ",
           run_.limits().max_text_bytes);
    }
    return Value(Value::Held(std::make_shared<const Text>(
        Text{.bytes = bytes, .length = count_characters(bytes), .escaped = false})));
  }

  Value list(const ordered_json& json, size_t depth) {
    auto made = std::make_shared<Sequence>();
    made->items.reserve(json.size());
    for (const ordered_json& item : json) {
      made->items.push_back(read(item, depth + 1));
      made->depth = std::max(made->depth, made->items.back().depth() + 1);
    }
    return Value(Value::Held(std::shared_ptr<const Sequence>(std::move(made))));
  }

  Value dict(const ordered_json& json, size_t depth) {
    Dict made;
    for (const auto& [key, item] : json.get_ref<const ordered_json::object_t&>()) {
      made.set(run_, text(key), read(item, depth + 1));
    }
    return Value(Value::Held(std::make_shared<const Dict>(std::move(made))));
  }

  Run& run_;
  const std::string& name_;
};

void append_unicode_escape(std::string& text, char32_t unit) {
  text += "\\u";
  append_hex(text, unit, 4);
}

void append_json_character(std::string& text, char32_t c, bool ensure_ascii) {
  constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  const size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
  if (found != std::string_view::npos) {
    text.push_back('\\');
    text.push_back(kLetters[found]);
  } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
    append_unicode_escape(text, c);
  } else if (ensure_ascii && c >= 0x10000) {
    append_unicode_escape(text, 0xD800 + ((c - 0x10000) >> 10));
    append_unicode_escape(text, 0xDC00 + ((c - 0x10000) & 0x3FF));
  } else {
    append_character(text, c);
  }
}

std::string json_string(std::string_view text, bool ensure_ascii) {
  std::string result = "\"";
  for (size_t offset = 0; offset < text.size();) {
    append_json_character(result, next_character(text, offset), ensure_ascii);
  }
  return result + '"';
}

std::string json_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number_text(number);
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style), text_(run) {}

  Value take() { return text_.value(); }

  void write(const Value& value, size_t level) {
    run_.charge(1);
    int64_t integer = 0;
    if (const Text* text = value.as_text()) {
      text_.add(json_string(text->bytes, style_.ensure_ascii));
    } else if (value.is_none()) {
      text_.add("null");
    } else if (const bool* boolean = value.as_boolean()) {
      text_.add(*boolean ? "true" : "false");
    } else if (value.get_integer(integer)) {
      text_.add(std::to_string(integer));
    } else if (const auto* number = std::get_if<double>(&value.held())) {
      text_.add(json_number(*number));
    } else if (const Dict* dict = value.as_dict()) {
      write_dict(*dict, level);
    } else if (value.as_sequence(Shape::kList) || value.as_sequence(Shape::kTuple)) {
      write_list(*value.as_sequence(), level);
    } else {
      run_.fail("writes ", kind_of(value), " as JSON, which has none");
    }
  }

 private:
  void end_line(size_t level) {
    if (!style_.indent) return;
    text_.add("\n");
    text_.add_repeated(*style_.indent, level);
  }

  void write_list(const Sequence& list, size_t level) {
    text_.add("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) text_.add(style_.item_separator);
      end_line(level + 1);
      write(list.items[i], level + 1);
    }
    if (!list.items.empty()) end_line(level);
    text_.add("]");
  }

  std::string key_of(const Value& key) const {
    int64_t integer = 0;
    if (const Text* text = key.as_text()) return text->bytes;
    if (key.is_none()) return "null";
    if (const bool* boolean = key.as_boolean()) return *boolean ? "true" : "false";
    if (key.get_integer(integer)) return std::to_string(integer);
    return json_number(std::get<double>(key.held()));
  }

  // Python sorts the keys themselves, so it refuses to sort texts among numbers.
  void sort(std::vector<const std::pair<Value, Value>*>& members) const {
    for (const auto* member : members) {
      if (!member->first.as_text()) {
        run_.fail("sorts the keys of a dict that has ", kind_of(member->first),
                  " among them; use texts as keys");
      }
    }
    std::ranges::stable_sort(members, {}, [](const auto* member) -> std::string_view {
      return member->first.as_text()->bytes;
    });
  }

  void write_dict(const Dict& dict, size_t level) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.items()) members.push_back(&member);
    if (style_.sort_keys) sort(members);
    text_.add("{");
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) text_.add(style_.item_separator);
      end_line(level + 1);
      text_.add(json_string(key_of(members[i]->first), style_.ensure_ascii));
      text_.add(style_.key_separator);
      write(members[i]->second, level + 1);
    }
    if (!members.empty()) end_line(level);
    text_.add("}");
  }

  Run& run_;
  const JsonStyle& style_;
  TextBuilder text_;
};

}  // namespace

Value from_json(Run& run, const ordered_json& json, const std::string& name) {
  return Importer(run, name).read(json, 0);
}

Value to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace trireme::dataset::chat
