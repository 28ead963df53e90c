// The methods of texts, lists, dicts and tuples. None changes what it belongs to.
#pragma once

#include "trireme/dataset/chat/builtins/call.h"

namespace trireme::dataset::chat {

// Throws: ConfigError when there is no such method here, or its arguments are not as expected
Value call_method(Run& run, const Method& method, const CallArguments& arguments);

// Of a text: `strip`, `split` and so on.
Value call_text_method(Run& run, const Text& text, const std::string& name,
                       const CallArguments& arguments);

}  // namespace trireme::dataset::chat
