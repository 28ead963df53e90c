// A config's keys as one list, each with a pointer to its value, made from the keys of its sections
// (base/key.h). Parsing, overrides, printing and --help use it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/key.h"

namespace trireme::train {

// An enum value of the config, read and written by the names in its table.
class NamedValue {
 public:
  template <typename Value>
  NamedValue(Value* value, std::span<const Choice<Value>> choices)
      : name_([=] { return name_of(choices, *value); }), assign_([=](std::string_view name) {
          const auto* const found = find_choice(choices, name);
          if (found != nullptr) *value = found->value;
          return found != nullptr;
        }) {}

  std::string name() const { return name_(); }
  // Sets the value of that name. False when there is none.
  bool assign(std::string_view name) const { return assign_(name); }

 private:
  std::function<std::string()> name_;
  std::function<bool(std::string_view)> assign_;
};

struct Field {
  std::string key;  // "train.steps"
  std::variant<int64_t*, uint64_t*, double*, bool*, std::string*, NamedValue> value;
  std::string meaning;
  Range range{};                       // numbers
  std::vector<std::string> allowed{};  // texts and enums; empty: any
  OnResume on_resume = OnResume::kMustStay;

  std::string section() const { return key.substr(0, key.find('.')); }
};

// Collects the keys of sections.
class Keys {
 public:
  // Adds the keys of `values` as "section.name". A section may be added in several parts. `values`
  // must outlive the fields.
  template <typename Section>
  void add(std::string_view section, Section& values) {
    visit_keys<Section>([&](const auto& key) { add_key(section, values, key); });
  }

  // In the order in which they were added, those of a section together.
  // Throws: ConfigError when two keys have one name
  std::vector<Field> take();

 private:
  template <typename Section, typename Value>
  void add_key(std::string_view section, Section& values, const Key<Section, Value>& key) {
    Value* const value = &(values.*key.member);
    Field field{.key = std::string(section) + "." + std::string(key.name),
                .value = place(value, key),
                .meaning = std::string(key.meaning),
                .range = key.range,
                .on_resume = key.on_resume};
    if (key.names != nullptr) field.allowed = key.names();
    if constexpr (std::is_enum_v<Value>) field.allowed = names_of(key.choices);
    fields_.push_back(std::move(field));
  }

  template <typename Section, typename Value>
  static decltype(Field::value) place(Value* value, const Key<Section, Value>& key) {
    if constexpr (std::is_enum_v<Value>) {
      return NamedValue(value, key.choices);
    } else {
      return value;
    }
  }

  std::vector<Field> fields_;
};

}  // namespace trireme::train
