// UTF-8 as in RFC 3629.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

// Bytes of the well-formed character at the start of `text`; 0 when there is none.
size_t utf8_character_bytes(std::string_view text);

// Whether `text` may become a well-formed character when more bytes come.
bool is_utf8_beginning(std::string_view text);

}  // namespace trireme
