// Files that an option asks for: drawings, tables, configs.
#pragma once

#include <string>
#include <string_view>

namespace trireme::cli::inline internal {

// Throws: ConfigError naming `option`, such as "--svg", when the file cannot be written
void write_output(std::string_view option, const std::string& path, std::string_view text);

}  // namespace trireme::cli::inline internal
