// Where text may be cut, and how far it is text at all. UTF-8 as in RFC 3629.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::dataset {

// Length of the longest prefix that is well-formed UTF-8 and free of what SentencePiece takes for
// something else: NUL, U+2581 (a space) and U+2585 (an unknown character).
size_t plain_prefix(std::string_view text);

// Length of the longest prefix of at most `limit` bytes that ends behind a line end; where there is
// none, that ends between two characters. Never 0 for a text and a limit that are not.
size_t cut_length(std::string_view text, size_t limit);

}  // namespace trireme::dataset
