// Texts taken apart and put together, as Python's str does: what filters and methods share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

// str.replace(): the first `count` places, all when it is negative. An empty `old` is found between
// all characters.
// Throws: ConfigError when the result is too large
Value replaced(Run& run, std::string_view text, std::string_view old, std::string_view replacement,
               int64_t count);

// str.split() and str.rsplit(): at most `count` cuts, from the left or the right; any number when
// it is negative. Without a separator at white space, of which none is left at the ends.
// Throws: ConfigError for an empty separator
Value split_at(Run& run, std::string_view text, std::optional<std::string_view> separator,
               int64_t count, bool from_right);

// str.partition() and str.rpartition(): a tuple of what is before, the separator, what is behind.
// Throws: ConfigError for an empty separator
Value partition_at(Run& run, std::string_view text, std::string_view separator, bool from_right);

// str.strip(), lstrip() and rstrip(). What is escaped stays so.
// Throws: ConfigError when there are too many characters to strip
Value stripped(Run& run, const Text& text, std::optional<std::string_view> characters,
               StripEnds ends = {});

// separator.join(items).
// Throws: ConfigError when one is no text
Value joined(Run& run, std::string_view separator, const Value& items);

}  // namespace trireme::dataset::chat
