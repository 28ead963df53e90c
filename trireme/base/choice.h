// A choice by name. One table of (name, value) defines the names a config may use, the list that
// `--help` prints, and the value of each name.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {

template <typename Value>
struct Choice {
  std::string_view name;
  Value value;
};

// In the order of the table.
template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& choice : table) names.emplace_back(choice.name);
  return names;
}

// "a, b, c".
inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "a", "a or b", "a, b or c".
inline std::string in_words(const std::vector<std::string>& names) {
  std::string words;
  for (size_t i = 0; i < names.size(); ++i) {
    words += i == 0 ? "" : i + 1 < names.size() ? ", " : " or ";
    words += names[i];
  }
  return words;
}

// The name of `value`, which must be in the table.
template <typename Table, typename Value>
std::string name_of(const Table& table, const Value& value) {
  const auto found =
      std::ranges::find_if(table, [&](const auto& choice) { return choice.value == value; });
  TRIREME_ASSERT(found != std::end(table), "a value without a name");
  return std::string(found->name);
}

// The entry of `name`; null when there is none.
template <typename Table>
auto find_choice(const Table& table, std::string_view name) {
  const auto found =
      std::ranges::find_if(table, [&](const auto& choice) { return choice.name == name; });
  return found == std::end(table) ? nullptr : &*found;
}

// The value that belongs to `name`. `what` names the setting in the error, such as "model.family".
// Throws: ConfigError with `what`, `name` and all names of the table
template <typename Table>
const auto& choose(const Table& table, std::string_view what, std::string_view name) {
  const auto* const found = find_choice(table, name);
  TRIREME_CHECK(found != nullptr, what, " is \"", shown(name), "\"; expected ",
                in_words(names_of(table)));
  return found->value;
}

}  // namespace trireme
