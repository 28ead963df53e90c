// Finds where text may be cut, and how much of it is well-formed. UTF-8 as defined in RFC 3629.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::dataset::inline internal {

// Length of the longest prefix that is well-formed UTF-8 without the characters that SentencePiece
// treats specially: NUL, U+2581 (a space) and U+2585 (an unknown character).
size_t plain_prefix(std::string_view text);

// Length of the longest prefix of at most `limit` bytes that ends after a line end; if there is
// none, that ends between two characters. Never 0 unless the text is empty or the limit 0.
size_t cut_length(std::string_view text, size_t limit);

}  // namespace trireme::dataset::inline internal
