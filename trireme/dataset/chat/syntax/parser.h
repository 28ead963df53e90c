// Reads a chat template into a syntax tree, and refuses by name and line whatever this program does
// not evaluate as Jinja does.
#pragma once

#include <string_view>

#include "trireme/dataset/chat/syntax/syntax.h"

namespace trireme::dataset::chat {

// Throws: ConfigError when the template is not well formed, is nested too deep, or has a tag, a
//         filter, a test or a function that is unknown
Program parse(Run& run, std::string_view text);

}  // namespace trireme::dataset::chat
