// Makes foreign text (from a ring, a manifest, a config, a file name, a model) safe to show: it
// moves no cursor, sets no title and is what it looks like.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace trireme::cli::inline internal {

// Keeps well-formed UTF-8. Control characters and all other bytes become "\x1b". One line.
std::string printable(std::string_view text);

// Indented, in ASCII: other characters become \u escapes, bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& object);

// Like printable(), for text that comes in pieces, which may end within a character. Keeps line
// ends and tabs.
class TerminalText {
 public:
  // Returns what can be shown so far.
  std::string add(std::string_view piece);
  // Returns the rest.
  std::string finish();

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace trireme::cli::inline internal
