// Text as Python sees it: a sequence of Unicode characters, here in well-formed UTF-8. Every
// `text` of this file must be well-formed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/chat/values/run.h"

namespace trireme::dataset::chat {

// The character at `offset`, which moves behind it. `offset` must be inside `text`.
char32_t next_character(std::string_view text, size_t& offset);
// The character that ends at `offset`, which moves before it. `offset` must not be 0.
char32_t previous_character(std::string_view text, size_t& offset);

void append_character(std::string& text, char32_t character);
// The last `digits` hexadecimal digits of its number.
void append_hex(std::string& text, char32_t character, int digits);

size_t count_characters(std::string_view text);
// Where character number `index` begins; the end of `text` when it has fewer.
size_t character_offset(std::string_view text, size_t index);

// As str.isspace() of one character.
bool is_space(char32_t character);
// Whether repr() shows it as it is: no control, no format character, no space but ' '.
bool is_printable(char32_t character);
bool is_letter(char32_t character);
bool is_decimal_digit(char32_t character);

// `text` without the characters at its ends that are white space, or in `characters`.
struct StripEnds {
  bool left = true;
  bool right = true;
};
std::string_view strip(std::string_view text, std::optional<std::string_view> characters = {},
                       StripEnds ends = {});

// As str.splitlines(). Line ends are \n, \r, \r\n, \v, \f, U+001C to U+001E, U+0085, U+2028 and
// U+2029. Charges a step for each line.
std::vector<std::string_view> split_lines(Run& run, std::string_view text, bool keep_ends = false);

}  // namespace trireme::dataset::chat
