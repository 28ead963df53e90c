// Values as Python's operators compare and search them: truth, length, equality, order, `in`, and
// what a loop goes through.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

bool is_true(const Value& value);

// len(); nothing for what has none.
std::optional<size_t> length_of(const Value& value);

bool is_iterable(const Value& value);
// The items that a loop goes through: elements, keys of a dict, characters. An iterator is read to
// its end.
// Throws: ConfigError when it has none
std::vector<Value> items_of(Run& run, const Value& value);

bool equal(Run& run, const Value& left, const Value& right);

// Negative, 0 or positive as `left` is less, equal or greater; nothing when a NaN is among them.
// Throws: ConfigError when they have no order
std::optional<int> order(Run& run, const Value& left, const Value& right);

// `item in container`.
// Throws: ConfigError when it is no container, or a text is searched for something else
bool contains(Run& run, const Value& container, const Value& item);

// Why an undefined value cannot be used.
// Throws: ConfigError if `value` is undefined
void require_defined(const Run& run, const Value& value);

}  // namespace trireme::dataset::chat
