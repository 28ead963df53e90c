// UTF-8 as defined in RFC 3629.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::inline internal {

// Number of bytes of the well-formed character at the start of `text`; 0 if there is none.
size_t utf8_character_bytes(std::string_view text);

// Whether `text` can become a well-formed character when more bytes follow.
bool is_utf8_beginning(std::string_view text);

// Whether all of `text` is well-formed.
bool is_utf8(std::string_view text);

// How much of `text` to keep when it must be cut: at most `max_bytes`, and no part of a character.
size_t utf8_prefix_bytes(std::string_view text, size_t max_bytes);

}  // namespace trireme::inline internal
