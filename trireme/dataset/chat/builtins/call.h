// What filters, tests and functions are given, and how they are found by name.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/values/format.h"
#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

struct CallArguments {
  std::vector<Value> positional{};
  NamedValues named{};
};

using FilterFunction = Value (*)(Run& run, const Value& input, const CallArguments& arguments);
using TestFunction = bool (*)(Run& run, const Value& input, const CallArguments& arguments);

// The arguments of a call by the names of its parameters, in their order. What is not given is
// empty.
class Parameters {
 public:
  // `callee` is for messages: "the filter join".
  // Throws: ConfigError when there are too many arguments, one has another name, one is given
  //         twice, or fewer than `num_required` are given
  Parameters(Run& run, std::string callee, const CallArguments& arguments,
             std::initializer_list<std::string_view> names, size_t num_required = 0);

  bool has(size_t index) const { return values_[index].has_value(); }
  // Throws: ConfigError when it is of another type
  const Value& value(size_t index) const { return *values_[index]; }
  Value value_or(size_t index, Value otherwise) const;
  const Text& text(size_t index) const;
  int64_t integer(size_t index, int64_t otherwise) const;
  bool truth(size_t index, bool otherwise) const;
  // A text, or nothing when it is none or not given.
  std::optional<std::string_view> optional_text(size_t index) const;

 private:
  [[noreturn]] void refuse(size_t index, std::string_view expected) const;

  Run& run_;
  std::string callee_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

// Throws: ConfigError when there are arguments
inline void take_none(Run& run, const char* callee, const CallArguments& arguments) {
  const Parameters none(run, callee, arguments, {});
}

// Null when there is none of this name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
std::optional<Function> find_function(std::string_view name);

// By a name that a template makes, for `map` and `select`.
// Throws: ConfigError when there is none
Value call_filter(Run& run, const Value& name, const Value& input, const CallArguments& arguments);
bool call_test(Run& run, const Value& name, const Value& input, const CallArguments& arguments);

// The names that there are: "abs, attr, ...".
std::string filter_names();
std::string test_names();

}  // namespace trireme::dataset::chat
