// Text for a terminal. Makes foreign text (from a ring, a manifest, a config, a file name, a model)
// safe to show: it moves no cursor, sets no title and is what it looks like. Fits text to a width:
// help that breaks between words, and lines shortened to their most important parts.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace trireme::cli {

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

// The width of the terminal on standard output; 80 when there is none.
size_t output_columns();

// Breaks lines between words. A line of two columns, such as an option with its meaning, goes on in
// its second column; prose is filled; a command line ends in a backslash where it is broken. A word
// that is longer than its column stays whole.
std::string wrapped_help(std::string_view text, size_t columns);

// A line of a report, which may begin with a label of eight columns. If it is longer than `columns`
// it goes on below its text; a row of a table, which has more gaps, stays as it is.
std::string wrapped_line(std::string_view line, size_t columns);

// A part of a line; the one with the lowest number is kept longest.
struct LinePart {
  int order = 0;
  std::string text{};
};
// The parts with two spaces between them. While they exceed `columns`, the highest order is left
// out; the last part that remains is kept whatever its length.
std::string fitted_line(std::span<const LinePart> parts, size_t columns);

}  // namespace trireme::cli
