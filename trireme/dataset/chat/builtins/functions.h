// The functions that templates call: range, dict, namespace, raise_exception and strftime_now.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "trireme/dataset/chat/builtins/call.h"

namespace trireme::dataset::chat {

struct FunctionContext {
  std::optional<std::chrono::local_seconds> now;  // for strftime_now
  std::deque<Namespace> namespaces{};             // those that the template has made
};

// Throws: ConfigError when the arguments are not as expected, with the template's words for
//         raise_exception, and for strftime_now without a time
Value call_function(Run& run, FunctionContext& context, Function function,
                    const CallArguments& arguments);

// Sets an attribute of a namespace.
// Throws: ConfigError when the name begins with _
void set_attribute(Run& run, Namespace& space, const std::string& name, Value value);

}  // namespace trireme::dataset::chat
