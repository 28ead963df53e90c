// The regular expressions of tokenizer.json are written for Oniguruma, in Ruby's syntax. This turns
// one into a pattern for PCRE2 that matches the same text.
#pragma once

#include <string>
#include <string_view>

namespace trireme::dataset::inline internal {

// Takes literals, classes, groups, assertions about what is before or behind, quantifiers, anchors,
// \s, \d, \p{...} and escaped characters. Matches are the same with PCRE2's options UTF, UCP and
// MULTILINE, and lines that end in \n.
// Throws: ConfigError that begins with `source`, for whatever the two libraries read differently
std::string as_pcre2(std::string_view pattern, std::string_view source);

}  // namespace trireme::dataset::inline internal
