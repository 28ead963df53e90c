// Unicode's composed normal form (NFC).
#pragma once

#include <string>
#include <string_view>

namespace trireme::dataset::inline internal {

// The normal form of `text`, which must be well-formed UTF-8. Returns `text` itself when it has no
// character that could change it, otherwise a view of `memory`. Takes O(n log n) time.
// Source: Unicode Standard Annex 15
std::string_view composed(std::string_view text, std::string& memory);

}  // namespace trireme::dataset::inline internal
