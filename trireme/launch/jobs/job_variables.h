// A process's environment as a map, so that what reads it can be tested.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace trireme::launch::inline internal {

using Variables = std::map<std::string, std::string, std::less<>>;

// The value; "" when the variable is not set. Schedulers do not tell the two apart either.
const std::string& value_of(const Variables& variables, std::string_view name);

// The first of `names` that has a value; "" when none has.
std::string_view first_set(const Variables& variables, std::initializer_list<const char*> names);

// setter: who sets the variable, as in "srun has".
// Throws: ConfigError unless the value is a decimal number from `minimum` on
int number_of(const Variables& variables, std::string_view name, int minimum,
              std::string_view setter);

// Throws: ConfigError when the variable has no value; `advice` says what to do
const std::string& needed(const Variables& variables, std::string_view name,
                          std::string_view advice);

}  // namespace trireme::launch::inline internal
