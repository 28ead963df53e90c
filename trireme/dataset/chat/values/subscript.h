// Parts of a value: `x.name`, `x[key]` and `x[begin:end:step]`.
#pragma once

#include <string_view>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

// `value.name`: a method before an item of a dict. Undefined when there is neither.
// Throws: ConfigError when `value` is undefined
Value attribute(Run& run, const Value& value, const Value& name);

// `value[key]`: an item before a method. Undefined when there is neither.
// Throws: ConfigError when `value` is undefined
Value item(Run& run, const Value& value, const Value& key);

// The filters' `attribute`: items of items, "name.0.other"; an integer; or none for the value.
// Where one is missing, `otherwise` is taken, if given.
Value item_by_path(Run& run, Value value, const Value& path, const Value* otherwise = nullptr);

// `value[begin:end:step]`; a part that is left out is none.
// Throws: ConfigError when `value` has no slices, or a part is no integer
Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step);

}  // namespace trireme::dataset::chat
