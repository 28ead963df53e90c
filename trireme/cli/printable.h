// Text that comes from elsewhere (a ring, a manifest, a config, the name of a file, a model), as it
// may be shown: it moves no cursor, sets no title and is what it looks like.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace trireme::cli {

// Well-formed UTF-8 stays; control characters and all other bytes become "\x1b". On one line.
std::string printable(std::string_view text);

// Indented, in ASCII: other characters are \u escapes, bytes that are no text become U+FFFD.
std::string json_text(const nlohmann::json& object);

// As printable(), of text that comes in pieces, which may end within a character. Line ends and
// tabs stay.
class TerminalText {
 public:
  // What can be shown by now.
  std::string add(std::string_view piece);
  // The rest.
  std::string finish();

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace trireme::cli
