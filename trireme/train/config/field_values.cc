#include "trireme/train/config/field_values.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <toml++/toml.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::train {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

[[noreturn]] void fail_type(const std::string& source, const Field& field, std::string_view found) {
  static const char* const kExpected[] = {"a whole number", "a whole number of at least 0",
                                          "a number",       "true or false",
                                          "a string",       "a string"};
  throw ConfigError(
      concat(source, ": ", field.key, " is ", found, "; expected ", kExpected[field.value.index()],
             field.range.zero.empty() ? "" : concat(" or \"", field.range.zero, "\"")));
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string quoted(const std::string& text) {
  TextWriter out;
  out << toml::value<std::string>(text);
  return out.str();
}

// Text that is not UTF-8 could be written into config.toml and a checkpoint, but never read again.
void check_utf8(const std::string& text, const std::string& source) {
  std::optional<std::string> again;
  try {
    again = toml::parse("text = " + quoted(text))["text"].value<std::string>();
  } catch (const toml::parse_error&) {
  }
  TRIREME_CHECK(again == text, source, " is \"", shown(text),
                "\", which TOML cannot hold; expected UTF-8");
}

[[noreturn]] void fail_choice(const Field& field, std::string_view found) {
  throw ConfigError(
      concat(field.key, " is \"", shown(found), "\"; expected one of ", joined(field.allowed)));
}

// The value in TOML, on one line and shortened.
std::string printed(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  TextWriter out;
  node.visit([&](const auto& value) { out << value; });
  return shown(out.str());
}

// Sets a number to 0 if `text` is the range's name of that.
template <typename Value>
bool assign_zero(Value* target, const Range& range, std::string_view text) {
  const bool is_zero = !range.zero.empty() && text == range.zero;
  if (is_zero) *target = 0;
  return is_zero;
}

// A 0 that has a name is written by its name.
template <typename Value>
void check_zero(const Value* value, const Field& field) {
  TRIREME_CHECK(field.range.zero.empty() || *value != 0, field.key, " is 0; expected ",
                to_text(field.range));
}

template <typename Value>
bool assign_node(Value* target, const toml::node& node) {
  // A double also takes whole numbers. Nothing else is converted.
  if constexpr (std::is_same_v<Value, double>) {
    if (const auto whole = node.value_exact<int64_t>()) {
      *target = static_cast<double>(*whole);  // rounded beyond 2^53, where value<double>() fails
    } else if (const auto real = node.value_exact<double>()) {
      *target = *real;
    } else {
      return false;
    }
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 0) return false;
    *target = static_cast<uint64_t>(*value);
  } else {
    const auto value = node.value_exact<Value>();
    if (!value) return false;
    *target = *value;
  }
  return true;
}

// The same, where 0 may have a name.
template <typename Value>
bool assign_number(Value* target, const Field& field, const toml::node& node) {
  if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
    const auto name = node.value_exact<std::string>();
    if (name && assign_zero(target, field.range, *name)) return true;
    const bool fits = assign_node(target, node);
    if (fits) check_zero(target, field);
    return fits;
  } else {
    return assign_node(target, node);
  }
}

constexpr size_t kMaxTextBytes = 4096;  // the limit for a path

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }
std::string_view name_of_key(std::string_view key) { return key.substr(key.find('.') + 1); }

// Advice on an unknown key: the key that was probably meant, or where to look.
std::string advice_on(const std::vector<Field>& fields, const std::string& key) {
  std::vector<std::string> keys, sections;
  for (const Field& field : fields) {
    keys.push_back(field.key);
    if (sections.empty() || sections.back() != section_of(field.key)) {
      sections.emplace_back(section_of(field.key));
    }
  }
  if (const std::string meant = did_you_mean(keys, key); !meant.empty()) return meant;
  const std::string section(section_of(key));
  std::vector<std::string> names, same;  // of the section; of the name, in other sections
  for (const std::string& other : keys) {
    if (section_of(other) == section) names.emplace_back(name_of_key(other));
    if (name_of_key(other) == name_of_key(key)) same.push_back(other);
  }
  const bool has_section = key.find('.') != key.npos;
  constexpr size_t kMostMeant = 2;
  if (!same.empty() && same.size() <= kMostMeant && (!has_section || !names.empty())) {
    for (std::string& other : same) other = "\"" + other + "\"";
    return concat("; did you mean ", in_words(same), "?");
  }
  if (names.empty()) {
    std::ranges::sort(sections);
    sections.erase(std::ranges::unique(sections).begin(), sections.end());
    if (!has_section) return concat("; keys stand in sections: ", in_words(sections));
    return concat("; there is no section [", shown(section), "], only ", in_words(sections));
  }
  constexpr size_t kFew = 12;
  return names.size() <= kFew ? concat("; [", section, "] has ", in_words(names))
                              : concat("; `--help` lists the keys of [", section, "]");
}

}  // namespace

Field& find_field(std::vector<Field>& fields, const std::string& key, const std::string& source) {
  const auto found = std::ranges::find(fields, key, &Field::key);
  if (found != fields.end()) return *found;
  TRIREME_CHECK(key.size() <= kMaxComparedBytes, source, ": unknown key \"", shown(key),
                "\"; `trireme train --help` lists all");
  throw ConfigError(concat(source, ": unknown key \"", shown(key), "\"", advice_on(fields, key)));
}

void assign_text(const Field& field, const std::string& text, const std::string& source) {
  const bool fits = std::visit(Overloaded{[&](std::string* value) {
                                            check_utf8(text, source);
                                            *value = text;
                                            return true;
                                          },
                                          [&](bool* value) {
                                            *value = text == "true";
                                            return *value || text == "false";
                                          },
                                          [&](const NamedValue& value) {
                                            if (!value.assign(text)) fail_choice(field, text);
                                            return true;
                                          },
                                          [&](auto* value) {
                                            if (assign_zero(value, field.range, text)) return true;
                                            const bool fits = parse_number(text, *value);
                                            if (fits) check_zero(value, field);
                                            return fits;
                                          }},
                               field.value);
  if (!fits) fail_type(source, field, concat("\"", shown(text), "\""));
}

void assign_table(std::vector<Field>& fields, const toml::table& table, const std::string& source) {
  for (const auto& [section, content] : table) {
    if (!content.is_table()) {
      find_field(fields, std::string(section.str()), source);
      throw ConfigError(concat(source, ":", content.source().begin.line, ": \"",
                               shown(section.str()),
                               "\" stands outside its section; expected [section] and below it "
                               "key = value"));
    }
    for (const auto& [name, node] : *content.as_table()) {
      const Field& field = find_field(fields, concat(section.str(), ".", name.str()), source);
      const std::string where = concat(source, ":", node.source().begin.line);
      const bool fits = std::visit(Overloaded{[&, &node = node](const NamedValue& value) {
                                                const auto name = node.value_exact<std::string>();
                                                if (name && !value.assign(*name))
                                                  fail_choice(field, *name);
                                                return name.has_value();
                                              },
                                              [&, &node = node](auto* target) {
                                                return assign_number(target, field, node);
                                              }},
                                   field.value);
      if (!fits) fail_type(where, field, printed(node));
    }
  }
}

void check_field(const Field& field) {
  std::visit(
      Overloaded{[&](const std::string* value) {
                   TRIREME_CHECK(value->size() <= kMaxTextBytes, field.key, " has ", value->size(),
                                 " bytes; expected at most ", kMaxTextBytes);
                   if (!field.allowed.empty() && !std::ranges::count(field.allowed, *value)) {
                     fail_choice(field, *value);
                   }
                 },
                 [](const bool*) {}, [](const NamedValue&) {},
                 [&](const auto* value) {
                   TRIREME_CHECK(field.range.contains(*value), field.key, " is ", *value,
                                 "; expected ", to_text(field.range));
                 }},
      field.value);
}

bool is_number(const Field& field) {
  return std::holds_alternative<int64_t*>(field.value) ||
         std::holds_alternative<uint64_t*>(field.value) ||
         std::holds_alternative<double*>(field.value);
}

std::string format_value(const Field& field) {
  return std::visit(
      Overloaded{[](const std::string* value) { return quoted(*value); },
                 [](const NamedValue& value) { return quoted(value.name()); },
                 [](const bool* value) { return std::string(*value ? "true" : "false"); },
                 [](const double* value) {
                   char digits[32];
                   const auto result = std::to_chars(digits, digits + sizeof(digits), *value);
                   const std::string text(digits, result.ptr);
                   return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
                 },
                 [&](const auto* value) {
                   const bool is_named = *value == 0 && !field.range.zero.empty();
                   return is_named ? quoted(std::string(field.range.zero)) : std::to_string(*value);
                 }},
      field.value);
}

}  // namespace trireme::train
