// Patterns of parameter names as a shell's: * is any text, ? one character, [ab] one of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::train {

// The whole of `name` must match.
bool matches(const std::string& pattern, const std::string& name);

// "a, b" at ',' -> {"a", "b"}: without the blanks around them; empty parts are left out.
std::vector<std::string> split_list(std::string_view text, char separator);

}  // namespace trireme::train
