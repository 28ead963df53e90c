// A config's keys as one list, each with a pointer to its value, made from the keys of its
// sections. Parsing, overrides, printing and --help use it. resolve(), check_layout() and
// check_memory() check what depends on other keys or on the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/key.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

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
};

// The fields of `config`, section by section, in the order of the documentation.
std::vector<Field> schema(RunConfig& config);

}  // namespace trireme::train::inline internal
