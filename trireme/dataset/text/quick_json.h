// The fast way to the text of a row: simdjson, several times as fast as the parser that explains
// what is wrong with a row of JSON.
// Source: Langdale and Lemire 2019, arXiv:1902.08318
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::dataset {

// Longer lines take the other way: a parser keeps 10 bytes for each byte of the longest, per
// thread.
inline constexpr size_t kMaxQuickBytes = size_t{1} << 20;

// The text of TextKey's member `name`, when the line is a valid object in which no key comes twice
// and that has it, within `max_depth` and `max_values`. It takes the place of the line's beginning.
// None when it is not, and always in a build without simdjson; what the line is then is for
// parse_json() to find. Thread safe.
// line: kJsonPadding (json_text.h) bytes can be read behind it
std::optional<std::string_view> quick_text(std::span<char> line, std::string_view name,
                                           size_t max_depth, size_t max_values);

// is_utf8() of base/locale/text.h.
bool quick_is_utf8(std::string_view text);

}  // namespace trireme::dataset
